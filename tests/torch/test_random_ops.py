"""Random ops draw from the device's Philox generator, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

LOOM = "loom"
OPS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(16, device=LOOM),
    "randn": lambda: torch.randn(16, device=LOOM),
    "randint": lambda: torch.randint(1000, (16,), device=LOOM),
    "randperm": lambda: torch.randperm(50, device=LOOM),
    "rand_like": lambda: torch.rand_like(torch.empty(16, device=LOOM)),
    "normal": lambda: torch.normal(torch.zeros(16, device=LOOM), 1.0),
    "bernoulli": lambda: torch.bernoulli(torch.full((64,), 0.5, device=LOOM)),
    "multinomial": lambda: torch.multinomial(torch.ones(64, device=LOOM), 16),
    "poisson": lambda: torch.poisson(torch.full((16,), 50.0, device=LOOM)),
    "binomial": lambda: torch.binomial(torch.full((16,), 99.0, device=LOOM), torch.tensor(0.5, device=LOOM)),
    "exponential_": lambda: torch.empty(16, device=LOOM).exponential_(),
    "geometric_": lambda: torch.empty(64, device=LOOM).geometric_(0.1),
    "cauchy_": lambda: torch.empty(16, device=LOOM).cauchy_(),
    "log_normal_": lambda: torch.empty(16, device=LOOM).log_normal_(),
    "random_": lambda: torch.empty(16, device=LOOM).random_(),
    "uniform_": lambda: torch.empty(16, device=LOOM).uniform_(-1, 1),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(64, device=LOOM)),
    "feature_dropout": lambda: torch.nn.functional.dropout2d(torch.ones(8, 8, 2, 2, device=LOOM)),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(16, device=LOOM), training=True),
    "dirichlet": lambda: torch._sample_dirichlet(torch.ones(4, 4, device=LOOM)),
    "gamma": lambda: torch._standard_gamma(torch.ones(16, device=LOOM)),
    "fractional_max_pool2d": lambda: torch.nn.functional.fractional_max_pool2d(
        torch.arange(4096.0, device=LOOM).view(16, 4, 8, 8), 2, output_size=5
    ),
}


@pytest.fixture(autouse=True)
def same_seed() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize("name", OPS)
def test_the_seed_decides_and_the_cpus_generator_rests(name: str) -> None:
    before = torch.get_rng_state()
    first, second = OPS[name](), OPS[name]()
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    assert torch.equal(OPS[name](), first)
    torch.loom.manual_seed(8)  # type: ignore[attr-defined]
    assert not torch.equal(OPS[name](), first)


@pytest.mark.parametrize("seeds", [(1, 1 + 2**32), (1, 1 + 2**63), (0, 2**64 - 1)])
def test_all_bits_of_the_seed_count(seeds: tuple[int, int]) -> None:
    draws = [torch.rand(8, generator=torch.Generator(LOOM).manual_seed(s), device=LOOM) for s in seeds]
    assert not torch.equal(*draws)


def test_a_generators_state_is_seed_and_offset() -> None:
    generator = torch.Generator(LOOM)
    generator.manual_seed(2**63 + 5)
    state = generator.get_state()
    assert state.tolist()[:8] == [5, 0, 0, 0, 0, 0, 0, 128]
    assert state.numel() == 16
    first = torch.randn(5, generator=generator, device=LOOM)
    later = generator.get_state()
    assert later.tolist()[:8] == state.tolist()[:8]
    assert not torch.equal(later, state)
    generator.set_state(state)
    assert torch.equal(torch.randn(5, generator=generator, device=LOOM), first)
    assert torch.equal(generator.get_state(), later)


def test_a_generator_of_ones_own_leaves_the_default_alone() -> None:
    before = torch.loom.get_rng_state()  # type: ignore[attr-defined]
    torch.rand(5, generator=torch.Generator(LOOM), device=LOOM)
    assert torch.equal(torch.loom.get_rng_state(), before)  # type: ignore[attr-defined]


def test_the_other_devices_generator_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'loom' device type for generator but found 'cpu'"):
        torch.rand(2, generator=torch.Generator(), device=LOOM)


def test_numbers_do_not_depend_on_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    draws = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            torch.manual_seed(7)
            draws.append(torch.cat([torch.rand(100_000, device=LOOM), torch.randn(100_000, device=LOOM)]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*draws)


def test_distributions() -> None:
    uniform, normal = torch.rand(100_000, device=LOOM), torch.randn(100_000, device=LOOM)
    assert 0 <= uniform.min().item() < 1e-3
    assert 1 - 1e-3 < uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.01
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02
    assert sorted(torch.randperm(100, device=LOOM).tolist()) == list(range(100))
    kept = torch.nn.functional.dropout(torch.ones(100_000, device=LOOM), 0.25)
    assert kept.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert abs(kept.mean().item() - 1) < 0.01


def test_fork_rng_puts_the_state_back() -> None:
    with torch.random.fork_rng(devices=[0], device_type=LOOM):
        inside = torch.rand(4, device=LOOM)
    assert torch.equal(torch.rand(4, device=LOOM), inside)


@pytest.mark.parametrize("side", [False, True], ids=["in place", "queued"])
def test_dropouts_mask_lies_as_the_input_and_is_drawn_by_element(side: bool) -> None:
    x = torch.rand(2, 4, 6, 8, device=LOOM) + 1
    layouts = (x.transpose(1, 2).contiguous().transpose(1, 2), x.to(memory_format=torch.channels_last), x.mT)
    with torch.loom.stream(torch.loom.Stream() if side else torch.loom.default_stream()):
        for given in layouts:
            drawn = []
            for each in (given, given.contiguous()):
                torch.loom.manual_seed(3)
                drawn.append(torch.native_dropout(each, 0.4, True))
            (result, mask), (plain, plain_mask) = drawn
            assert result.stride() == mask.stride() == given.stride()
            assert torch.equal(mask, plain_mask)
            assert torch.equal(result, plain)
            assert torch.equal(mask, result != 0)
