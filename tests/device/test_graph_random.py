"""Graphs: which random numbers a replay draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import torch_loom.device as loom


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device="loom")


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: functional.dropout(x, 0.5),
        lambda x: torch.randn(64, device="loom"),
        lambda x: torch.rand_like(x) + torch.randint(0, 9, (64,), device="loom"),
        lambda x: torch.bernoulli(x * 0.3).add_(torch.randperm(64, device="loom")),
        lambda x: x.clone().normal_().add_(x.clone().exponential_()),
    ],
)
def test_replays_draw_what_eager_draws(draw: Callable[[Tensor], Tensor]) -> None:
    x = ones(64)
    draw(x)
    loom.manual_seed(5)
    wanted = [draw(x).cpu() for _ in range(3)]
    offset = loom._get_rng_state_offset()
    graph = loom.LoomGraph()
    loom.manual_seed(6)
    with loom.graph(graph):
        found = draw(x)
    assert loom._get_rng_state_offset() == 0
    for _ in range(2):
        loom.manual_seed(5)
        for one in wanted:
            graph.replay()
            assert torch.equal(found.cpu(), one)
        assert loom._get_rng_state_offset() == offset
    assert not torch.equal(wanted[0], wanted[1])


def test_replay_and_eager_draw_from_one_sequence() -> None:
    x = ones(32)
    graph = loom.LoomGraph()
    with loom.graph(graph):
        a = torch.rand_like(x)
        b = torch.rand_like(x)
    loom.manual_seed(11)
    wanted = [torch.rand_like(x).cpu() for _ in range(6)]
    loom.manual_seed(11)
    first = torch.rand_like(x)
    graph.replay()
    assert torch.equal(torch.stack([first, a, b]).cpu(), torch.stack(wanted[:3]))
    middle = torch.rand_like(x)
    graph.replay()
    assert torch.equal(torch.stack([middle, a, b]).cpu(), torch.stack(wanted[3:]))


def test_draws_on_a_side_stream_use_the_state_at_their_replay() -> None:
    graph = loom.LoomGraph()
    stream = loom.Stream()
    with loom.graph(graph):
        a = torch.rand(1000, device="loom")
    seen = torch.zeros(3, 1000, device="loom")
    loom.manual_seed(2)
    stream.wait_stream(loom.current_stream())
    with loom.stream(stream):
        for step in range(3):
            graph.replay()
            seen[step].copy_(a)
    loom.manual_seed(2)
    loom.synchronize()
    wanted = torch.stack([torch.rand(1000, device="loom").cpu() for _ in range(3)])
    assert torch.equal(seen.cpu(), wanted)


def test_a_generator_of_ones_own_is_registered() -> None:
    generator = torch.Generator("loom").manual_seed(3)
    graph = loom.LoomGraph()
    with pytest.raises(RuntimeError, match="register_generator_state"), loom.graph(graph):
        torch.rand(4, device="loom", generator=generator)
    with pytest.raises(TypeError):
        graph.register_generator_state(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="expected a generator of a loom device"):
        graph.register_generator_state(torch.Generator())
    graph.register_generator_state(generator)
    with loom.graph(graph):
        x = torch.rand(4, device="loom", generator=generator)
    graph.replay()
    wanted = torch.rand(4, device="loom", generator=torch.Generator("loom").manual_seed(3))
    assert torch.equal(x.cpu(), wanted.cpu())


def test_seeds_cannot_change_during_a_capture() -> None:
    seed = loom.initial_seed()
    graph = loom.LoomGraph()
    with loom.graph(graph):
        loom.manual_seed(seed)
        for change in (lambda: loom.manual_seed(seed + 1), lambda: loom._set_rng_state_offset(4)):
            with pytest.raises(RuntimeError, match="during stream capture"):
                change()
        torch.rand(2, device="loom")
