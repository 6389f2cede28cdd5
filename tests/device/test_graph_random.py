"""Graphs: which random numbers a replay draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

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
    with pytest.raises(RuntimeError, match="register_generator_state"), loom.graph(loom.LoomGraph()):
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
        with pytest.raises(
            RuntimeError,
            match="LOOMGeneratorImpl::set_current_seed can be called during stream capture only if new seed "
            "is the same as the original seed",
        ):
            loom.manual_seed(seed + 1)
        torch.rand(2, device="loom")


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_draw_the_same_numbers_again(use_reentrant: bool) -> None:
    def fn(x: Tensor) -> Tensor:
        return x * torch.sigmoid(torch.randn(8, device="loom"))

    def gradient() -> tuple[Tensor, Tensor]:
        x = torch.ones(8, device="loom", requires_grad=True)
        y = checkpoint(fn, x, use_reentrant=use_reentrant, preserve_rng_state=True)
        y.sum().backward()
        assert x.grad is not None
        return y, x.grad

    loom.manual_seed(42)
    wanted = [[tensor.cpu() for tensor in gradient()] for _ in range(2)]
    offset = loom._get_rng_state_offset()
    graph = loom.LoomGraph()
    loom.manual_seed(7)
    with loom.graph(graph):
        found = gradient()
    loom.manual_seed(42)
    for result, grad in wanted:
        graph.replay()
        assert torch.equal(found[0].cpu(), result)
        assert torch.equal(found[1].cpu(), grad)
        assert torch.equal(result, grad)
    assert loom._get_rng_state_offset() == offset


def test_the_state_moves_within_a_graph() -> None:
    graph = loom.LoomGraph()
    loom.manual_seed(9)
    torch.rand(3, device="loom")
    before = loom.get_rng_state()
    with loom.graph(graph):
        start = loom.get_rng_state()
        a = torch.rand(4, device="loom")
        b = torch.rand(4, device="loom")
        end = loom.get_rng_state()
        loom.set_rng_state(start)
        again = torch.rand(4, device="loom")
        loom._set_rng_state_offset(loom._get_rng_state_offset() + 4)
        after = torch.rand(4, device="loom")
        loom.set_rng_state(end)
    assert torch.equal(loom.get_rng_state(), before)
    for _ in range(2):
        state = loom.get_rng_state()
        wanted = [torch.rand(4, device="loom").cpu() for _ in range(3)]
        loom.set_rng_state(state)
        graph.replay()
        assert [
            torch.equal(x.cpu(), y)
            for x, y in zip((a, b, again, after), (*wanted[:2], wanted[0], wanted[2]), strict=True)
        ] == [True] * 4
        assert loom._get_rng_state_offset() == int.from_bytes(bytes(state[8:].tolist()), "little") + 8


def test_a_graph_that_puts_the_state_back_draws_what_the_state_is_at_its_replay() -> None:
    graph = loom.LoomGraph()
    with loom.graph(graph):
        state = loom.get_rng_state()
        x = torch.rand(4, device="loom")
        loom.set_rng_state(state)
    for seed in (1, 2):
        loom.manual_seed(seed)
        graph.replay()
        assert loom._get_rng_state_offset() == 0
        assert torch.equal(x.cpu(), torch.rand(4, device="loom").cpu())


def test_states_are_exchanged_within_a_capture() -> None:
    generator = torch.Generator("loom").manual_seed(5)
    first = generator.graphsafe_get_state()
    second = first.clone_state().manual_seed(6)
    graph = loom.LoomGraph()
    for state in (first, second):
        graph.register_generator_state(state)

    def draws() -> list[Tensor]:
        generator.graphsafe_set_state(second)
        results = [torch.rand(5, device="loom", generator=generator)]
        generator.graphsafe_set_state(first)
        return results + [torch.rand(5, device="loom", generator=generator) for _ in range(2)]

    wanted = [draw.cpu() for _ in range(2) for draw in draws()]
    offsets = first.get_offset(), second.get_offset()
    assert offsets[0] == 2 * offsets[1] > 0
    for state, seed in ((first, 5), (second, 6)):
        state.manual_seed(seed)
    with loom.graph(graph):
        found = draws()
    replayed = []
    for _ in range(2):
        graph.replay()
        replayed += [draw.cpu() for draw in found]
    assert all(torch.equal(one, other) for one, other in zip(replayed, wanted, strict=True))
    assert (first.get_offset(), second.get_offset()) == offsets
    with pytest.raises(RuntimeError, match="state of a generator of loom:0"):
        generator.graphsafe_set_state(torch.Generator("loom:1"))
