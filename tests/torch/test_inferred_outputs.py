"""Outputs that are known before an op has run: the first call on a busy stream, captures, errors.

``gate`` holds a stream up; nothing that waits for it returns before it is opened.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import torch_loom.device as loom
from torch_loom import _C

if TYPE_CHECKING:
    from tests.gate import Gate

_sizes = itertools.count(1009)  # other tests of this process use small sizes


def fresh(*shape: int) -> tuple[Tensor, Tensor]:
    """Return numbers of a shape that no call of this process has seen, here and on the device."""
    x = torch.rand(*shape, next(_sizes), generator=torch.Generator().manual_seed(1))
    there = x.to("loom")
    loom.synchronize()
    return x, there


def _eye(x: Tensor) -> Tensor:
    return torch.eye(x.shape[1], device=x.device)


def _lstm(x: Tensor) -> Tensor:
    state = torch.zeros(1, 1, 3, device=x.device)
    shapes = (12, x.shape[1]), (12, 3), (12,), (12,)
    params = [torch.full(shape, 0.1, device=x.device) for shape in shapes]
    return torch.lstm(x[:, None], [state, state], params, True, 1, 0.0, False, False, False)[0]


# name, what is done with a matrix of two rows, from where the outputs are known
FIRST_CALLS: list[tuple[str, Callable[[Tensor], Any], str]] = [
    ("add", lambda x: x + x, "cpp"),
    ("in place", lambda x: x.clone().mul_(2), "cpp"),
    ("out", lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)), "cpp"),
    ("matmul", lambda x: x @ x.t(), "cpp"),
    ("sum", lambda x: x.sum(1), "cpp"),
    ("softmax", lambda x: x.softmax(1), "cpp"),
    ("max", lambda x: torch.max(x, 1), "cpp"),
    ("cat", lambda x: torch.cat([x, x], 1), "cpp"),
    ("indexed", lambda x: x[(x[:1, 0] * 0).long()], "cpp"),
    ("sort", lambda x: torch.sort(x, stable=True), "cpp"),
    ("foreach", lambda x: torch._foreach_add([x, x], 1.0), "python"),
    # Whose shape function in C++ is wrong.
    ("scalar", lambda x: torch.isin(0.5, x), "python"),
    # Whose shape functions are wrong: the engine's kernel is run on zeros.
    ("batch norm", lambda x: F.batch_norm(x, x[0] * 0, x[0] * 0 + 1), "engine"),
    ("layer norm", lambda x: F.layer_norm(x, x.shape[1:]), "engine"),
    (
        "bag",
        lambda x: F.embedding_bag(torch.arange(2, device=x.device), x, torch.arange(1, device=x.device)),
        "engine",
    ),
    ("labels", lambda x: F.multilabel_margin_loss(x[0], (x[0] * 0).long(), reduction="none"), "engine"),
    ("out of a method", lambda x: torch.ormqr(_eye(x), _eye(x)[0], _eye(x), out=_eye(x).t()[:0]), "engine"),
    ("lstm", _lstm, "engine"),
]


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize(("name", "work", "source"), FIRST_CALLS, ids=[name for name, *_ in FIRST_CALLS])
def test_the_first_call_on_a_busy_stream_does_not_wait(
    gate: Gate, name: str, work: Callable[[Tensor], Any], source: str
) -> None:
    x, there = fresh(2)
    side = loom.Stream()
    gate.hold(side)
    before = _C.inference_counts()
    with loom.stream(side):
        result = work(there)
        assert not side.query()
    after = _C.inference_counts()
    assert after["unknown"] == before["unknown"]
    assert after[source] > before[source]
    gate.open()
    side.synchronize()
    for got, wanted in zip(_tensors(result), _tensors(work(x)), strict=True):
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
        torch.testing.assert_close(got.cpu(), wanted)


def test_a_run_in_place_teaches_the_queue(gate: Gate) -> None:
    """Of ops without a shape function, and of those whose shape function is wrong."""
    x, there = fresh(2)
    lengths = there.shape[1:]
    for _ in range(2):
        F.layer_norm(there, lengths)
        torch.geqrf(there)  # one of the boxed ops
    side = loom.Stream()
    gate.hold(side)
    before = _C.inference_counts()
    with loom.stream(side):
        result = F.layer_norm(there, lengths), *torch.geqrf(there)
    after = _C.inference_counts()
    assert after == {**before, "known": before["known"] + 2}
    gate.open()
    side.synchronize()
    for got, wanted in zip(result, (F.layer_norm(x, lengths), *torch.geqrf(x)), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


class _Steps:
    """Programs whose shape functions say something else than the engine's kernels do."""

    @staticmethod
    def batch_norm() -> Callable[[], Tensor]:
        norm = nn.BatchNorm2d(3).to("loom").eval()
        x = torch.rand(2, 3, 4, 4, device="loom")
        return lambda: norm(x)

    @staticmethod
    def lstm() -> Callable[[], Tensor]:
        lstm = nn.LSTM(5, 6, num_layers=2).to("loom").eval()
        x = torch.rand(3, 2, 5, device="loom")

        def step() -> Tensor:
            with torch.no_grad():
                return lstm(x)[0]

        return step

    @staticmethod
    def embedding_bag() -> Callable[[], Tensor]:
        bag = nn.EmbeddingBag(9, 4, mode="mean").to("loom")
        x, offsets = torch.arange(6, device="loom"), torch.tensor([0, 1, 3, 4], device="loom")
        return lambda: bag(x, offsets)

    @staticmethod
    def training() -> Callable[[], Tensor]:
        layer = nn.Linear(4, 3).to("loom")
        x = torch.rand(5, 4, device="loom")

        def step() -> Tensor:
            with torch.no_grad():
                return F.gelu(layer(x)).sum()

        return step


@pytest.mark.parametrize("name", ["batch_norm", "lstm", "embedding_bag", "training"])
def test_a_warm_up_on_the_default_stream_is_enough_for_a_capture(name: str) -> None:
    torch.manual_seed(3)
    step = getattr(_Steps, name)()
    expected = step().clone()
    graph = loom.LoomGraph()
    with loom.graph(graph):
        result = step()
    graph.replay()
    torch.testing.assert_close(result.cpu(), expected.cpu())


@pytest.mark.parametrize("fused", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.AdamW])
def test_fused_optimizers_are_captured_after_a_step_on_the_default_stream(fused: Any) -> None:
    def run(device: str, graphed: bool) -> Tensor:
        p = torch.linspace(-1, 1, 6, device=device).requires_grad_()
        p.grad = torch.linspace(2, 3, 6, device=device)
        options = {"capturable": True} if fused is torch.optim.AdamW else {}
        optimizer = fused([p], lr=0.1, fused=True, **options)
        optimizer.step()
        if graphed:
            graph = loom.LoomGraph()
            with loom.graph(graph):
                optimizer.step()
            graph.replay()
        else:
            optimizer.step()
        return p.detach()

    try:
        expected = run("loom", graphed=False)
    except RuntimeError as error:
        pytest.skip(f"not here: {error}")
    torch.testing.assert_close(run("loom", graphed=True).cpu(), expected.cpu())


def test_a_capture_without_a_warm_up() -> None:
    x, there = fresh(3)
    graph = loom.LoomGraph()
    with loom.graph(graph):
        y = F.gelu(there @ there.t()).cumsum(1).max(1).values
    graph.replay()
    torch.testing.assert_close(y.cpu(), F.gelu(x @ x.t()).cumsum(1).max(1).values)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_no_answer_of_a_shape_function_is_raised(error: type[BaseException]) -> None:
    def interrupted(*arguments: object) -> None:
        raise error("while it inferred")

    _, there = fresh(3)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("geqrf", interrupted, "Meta")
        graph = loom.LoomGraph()
        with pytest.raises(error, match="while it inferred"), loom.graph(graph):
            torch.geqrf(there)
    torch.geqrf(there)
    loom.synchronize()


def test_where_a_shape_function_fails_the_kernel_says_what_is_returned(gate: Gate) -> None:
    def wrong(*arguments: object) -> None:
        raise ValueError("has no idea")

    x, there = fresh(3)
    graph = loom.LoomGraph()
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("geqrf", wrong, "Meta")
        with loom.graph(graph):
            captured = torch.geqrf(there)
        with loom.stream(loom.Stream()):
            result = torch.geqrf(there)
        loom.synchronize()
    graph.replay()
    for got in (captured, result):
        torch.testing.assert_close(got[0].cpu(), torch.geqrf(x)[0])


@pytest.mark.parametrize(
    ("work", "error", "words"),
    [
        (lambda x: x @ x, RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
        (lambda x: x + x[:, 1:], RuntimeError, "must match the size of tensor b"),
        (lambda x: x.sum(9), IndexError, "Dimension out of range"),
        (lambda x: torch.cat([x, x[:, 1:]]), RuntimeError, "Sizes of tensors must match"),
        (lambda x: F.conv1d(x, x[:1, None, :3]), RuntimeError, "to have 1 channels"),
    ],
    ids=["matmul", "add", "sum", "cat", "conv"],
)
def test_a_mistake_of_the_program_keeps_its_error_in_a_capture(
    work: Callable[[Tensor], Any], error: type[Exception], words: str
) -> None:
    """Nothing was issued, so the capture goes on, as on a GPU."""
    x, there = fresh(3)
    with pytest.raises(error, match=words):
        work(x)
    graph = loom.LoomGraph()
    with loom.graph(graph):
        with pytest.raises(error, match=words):
            work(there)
        doubled = there * 2
    graph.replay()
    torch.testing.assert_close(doubled.cpu(), x * 2)


def test_inference_leaves_random_state_and_modes_alone() -> None:
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    _, there = fresh(2)
    before = torch.get_rng_state()
    with loom.stream(loom.Stream()), Counting() as mode:
        F.dropout(there, 0.5)
        F.layer_norm(there, there.shape[1:])
    loom.synchronize()
    assert torch.equal(torch.get_rng_state(), before)
    assert set(mode.seen) <= {"dropout", "layer_norm", "__get__"}


def test_an_op_has_one_name_on_every_stream() -> None:
    names = []
    reader = _C.TapeReader(lambda kind, device, stream, name, *rest: names.append((stream != 0, name)))
    x = torch.ones(3, device="loom")
    side = loom.Stream()
    for _ in range(2):
        reader.attach()
        x + x
        with loom.stream(side):
            x + x
        reader.detach()
    loom.synchronize()
    assert {name for is_side, name in names if is_side and "add" in name} == {"aten::add.Tensor"}
    assert {name for is_side, name in names if not is_side and "add" in name} == {"aten::add.Tensor"}
