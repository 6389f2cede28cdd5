"""Lazy device memory: what stays on the host side, with the numbers of the device.

Needs the lazy policy for the whole process: test_lazy_policy.py runs this file so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.torch.lazy_figures import Figures, figures, on_device, only_under_the_lazy_policy, rounded, since

only_under_the_lazy_policy()

Fill = Callable[[Tensor], Tensor]


def test_an_empty_tensor_takes_no_memory_at_all() -> None:
    before = figures()
    x = torch.empty(1000, device="loom")
    assert since(before) == Figures(pending=1)
    del x
    assert since(before) == Figures()
    torch.empty(0, device="loom")
    torch.empty_strided((2, 3), (1, 2), device="loom").resize_(9).resize_(0)
    assert since(before) == Figures()


CREATIONS: dict[str, Callable[..., Tensor]] = {
    "zeros": lambda **on: torch.zeros(30, **on),
    "ones": lambda **on: torch.ones(5, 6, dtype=torch.int16, **on),
    "full": lambda **on: torch.full((7,), 2.5, **on),
    "scalar_tensor": lambda **on: torch.scalar_tensor(3, **on),
    "tensor": lambda **on: torch.tensor([[1, 2], [3, 4]], **on),
    "as_tensor": lambda **on: torch.as_tensor([1.5, 2.5], **on),
    "arange": lambda **on: torch.arange(3, 40, 2, **on),
    "range": lambda **on: torch.linspace(0, 1, 11, dtype=torch.float64, **on),
    "logspace": lambda **on: torch.logspace(0, 2, 5, **on),
    "eye": lambda **on: torch.eye(4, **on),
    "eye_m": lambda **on: torch.eye(4, 7, **on),
    "tril_indices": lambda **on: torch.tril_indices(4, 4, **on),
    "triu_indices": lambda **on: torch.triu_indices(4, 5, **on),
    "to": lambda device: torch.arange(12.0).reshape(3, 4).to(device),
    "to_dtype": lambda device: torch.arange(12.0).to(device, torch.float16),
    "to_channels_last": lambda device: torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)).to(
        device, memory_format=torch.channels_last
    ),
    "parameter": lambda device: nn.Parameter(torch.arange(4.0)).to(device),
    "like": lambda device: torch.zeros_like(torch.empty(3, 4, device=device)).fill_(2),
    "new": lambda device: torch.empty(1, device=device).new_full((3, 3), 9),
}
RANDOM: dict[str, Callable[..., Tensor]] = {
    "rand": lambda **on: torch.rand(100, **on),
    "randn": lambda **on: torch.randn(10, 10, dtype=torch.float64, **on),
    "randint": lambda **on: torch.randint(-5, 9, (50,), **on),
    "randperm": lambda **on: torch.randperm(60, **on),
    "normal": lambda **on: torch.normal(2.0, 3.0, (33,), **on),
}


@pytest.mark.parametrize("name", [*CREATIONS, *RANDOM])
def test_creation_stays_on_the_host(name: str) -> None:
    before = figures()
    x = {**CREATIONS, **RANDOM}[name](device="loom")
    used = since(before)
    bytes_ = x.untyped_storage().nbytes()
    assert (used.allocated, used.host, used.pending, used.moves) == (0, bytes_, 1, 0)
    on_host = x.cpu()
    if name in CREATIONS:
        assert torch.equal(on_host, CREATIONS[name](device="cpu"))
    assert x.tolist() == on_host.tolist()
    assert since(before) == used
    moved = x + 0
    assert torch.equal(moved.cpu(), on_host)
    now = since(before)
    assert (now.host, now.pending, now.moved, now.moves) == (0, 0, bytes_, 1)
    assert now.allocated == rounded(bytes_) + rounded(moved.untyped_storage().nbytes())


FILLS: dict[str, Fill] = {
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3),
    "fill_tensor": lambda x: x.fill_(torch.tensor(3)),
    "normal_": lambda x: x.normal_(1, 2),
    "uniform_": lambda x: x.uniform_(-1, 1),
    "random_": lambda x: x.random_(),
    "random_to": lambda x: x.random_(100),
    "random_from": lambda x: x.random_(-7, 90),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "exponential_": lambda x: x.exponential_(2),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "geometric_": lambda x: x.geometric_(0.4),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_filling_in_place_gives_the_numbers_of_the_device(name: str, dtype: torch.dtype) -> None:
    fill = FILLS[name]
    torch.manual_seed(5)
    device = on_device(torch.empty(40, 50, device="loom", dtype=dtype))
    fill(device)
    fill(device.t()[3:])
    state = torch.loom.get_rng_state()
    torch.manual_seed(5)
    before = figures()
    unmaterialised = torch.empty(40, 50, device="loom", dtype=dtype)
    assert fill(unmaterialised) is unmaterialised
    fill(unmaterialised.t()[3:])
    assert since(before) == Figures(host=unmaterialised.nbytes, pending=1)
    assert torch.equal(unmaterialised.cpu(), device.cpu())
    assert torch.equal(torch.loom.get_rng_state(), state)


def test_a_generator_of_ones_own() -> None:
    draws = []
    for prepare in (on_device, lambda x: x):
        generator = torch.Generator("loom").manual_seed(3)
        x = prepare(torch.empty(9, device="loom"))
        draws.append((x.normal_(generator=generator).cpu(), generator.get_state()))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    with pytest.raises(RuntimeError, match="'loom' device type for generator"):
        torch.empty(2, device="loom").normal_(generator=torch.Generator())


def test_operands_on_the_device_are_ops() -> None:
    before = figures()
    torch.empty(5, device="loom").fill_(torch.ones((), device="loom"))
    torch.empty(5, device="loom").bernoulli_(torch.full((5,), 0.5, device="loom"))
    assert since(before).moves == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_copies_between_host_and_host_side(dtype: torch.dtype) -> None:
    source = torch.arange(24).reshape(2, 3, 4).to(dtype)
    before = figures()
    x = torch.zeros(2, 3, 4, device="loom")
    if dtype.is_complex:
        x = x.to(torch.complex128)
        before = figures()
    x.copy_(source)
    x[0, :, 1:3].copy_(torch.full((2,), 7))
    x.transpose(0, 2)[1].copy_(source[:, :, 0].t())
    expected = torch.zeros(2, 3, 4, dtype=x.dtype).copy_(source)
    expected[0, :, 1:3] = 7
    expected.transpose(0, 2)[1].copy_(source[:, :, 0].t())
    assert torch.equal(x.cpu(), expected)
    assert torch.equal(x.t_().cpu() if x.dim() == 2 else x.mT.cpu(), expected.mT)
    assert torch.equal(torch.empty(2, 2, 3, 4, dtype=x.dtype).copy_(x), expected.expand(2, 2, 3, 4))
    assert torch.equal(x.to("cpu", x.dtype, non_blocking=True), expected)
    assert since(before).moves == 0
    assert torch.equal((x + 0).cpu(), expected)


def test_pinned_memory() -> None:
    before = figures()
    pinned = torch.arange(6.0).pin_memory()
    x = pinned.to("loom", non_blocking=True)
    back = torch.empty(6).pin_memory().copy_(x, non_blocking=True)
    assert torch.equal(back, pinned)
    assert since(before).moves == 0


def test_conjugate_and_negative_views() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).to("loom")
    assert x.conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    assert x.conj().imag.cpu().tolist() == [-2, 4]
    assert (x.conj() + 0).tolist() == [1 - 2j, 3 + 4j]


def test_reading_one_element() -> None:
    x = torch.arange(6, device="loom").view(2, 3)
    before = figures()
    assert x[1, 2].item() == 5
    assert bool(x[0, 1])
    assert [int(each) for each in x[1]] == [3, 4, 5]
    assert torch.tensor(1.5, device="loom", dtype=torch.float8_e4m3fn).item() == 1.5
    assert since(before).moves == 0
