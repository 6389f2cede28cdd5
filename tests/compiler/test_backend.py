"""torch.compile(backend="loom"): eager's bits, replayed; what stays on the host, and why."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from torch_loom.errors import CompilerOptionError

PROGRAMS = Path(__file__).parent / "programs" / "backend"

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import PythonRunner


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    from torch_loom.compiler import backend

    torch.compiler.reset()
    backend.reset()
    yield
    backend.reset()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + functional.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)


def model() -> nn.Module:
    torch.manual_seed(0)
    return Attention().to("loom")


@pytest.mark.long
def test_inference_has_eagers_bits_and_is_replayed() -> None:
    from torch_loom.compiler.backend import compiled_graphs

    own = model().eval()
    compiled = torch.compile(own, backend="loom", fullgraph=True)
    kept = []
    with torch.no_grad():
        for step in range(4):
            x = torch.randn(2, 6, 16, device="loom") * (step + 1)
            kept.append((compiled(x), own(x)))
    assert all(torch.equal(ours, theirs) for ours, theirs in kept), "and each call's result stays its own"
    (graph,) = compiled_graphs()
    assert graph.role == "inference"
    assert graph.replayer is not None
    assert (graph.replayer.num_graphs, graph.replayer.refusal) == (1, "")
    assert graph.host_nodes == {}
    # A parameter that is changed in place is seen by the replay; one that is replaced, too.
    with torch.no_grad():
        own.out.bias.add_(1)
        assert torch.equal(compiled(x), own(x))
        own.out.bias = nn.Parameter(torch.randn(16, device="loom"))
        assert torch.equal(compiled(x), own(x))


def test_a_replay_reads_parameters_where_they_are() -> None:
    own = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512)).eval().to("loom")
    compiled = torch.compile(own, backend="loom")
    x = torch.randn(4, 512, device="loom")
    before = torch.loom.memory_allocated()
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    torch.loom.synchronize()
    assert torch.loom.memory_allocated() - before < 512 * 512 * 4, "the graph has a copy of the weight"


@pytest.mark.long
def test_a_training_step_has_eagers_bits_dropout_included() -> None:
    ours, theirs = model(), model()
    compiled = torch.compile(ours, backend="loom")
    for step, length in enumerate((6, 6, 4)):
        x = torch.randn(2, length, 16, device="loom")
        losses = []
        for network in (compiled, theirs):
            torch.manual_seed(step)
            loss = network(x).square().mean()
            loss.backward()
            losses.append(loss)
        assert torch.equal(*losses)
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)


@pytest.mark.long
def test_what_depends_on_values_is_not_replayed() -> None:
    from torch_loom.compiler.backend import compiled_graphs

    compiled = torch.compile(lambda x: x[x > 0].sum() * 2, backend="loom")
    x = torch.tensor([-1.0, 2.0, 3.0], device="loom")
    assert [compiled(x * step).item() for step in (1, -1, 2)] == [10.0, 2.0, 20.0]
    assert all(graph.replayer is None or graph.replayer.num_graphs <= 1 for graph in compiled_graphs())


def test_inputs_that_are_changed_and_views_of_inputs() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x.t(), y.mul(2)

    x, y = torch.zeros(2, 3, device="loom"), torch.ones(3, device="loom")
    compiled = torch.compile(program, backend="loom")
    for step in range(1, 4):
        view, doubled = compiled(x, y)
        assert x.unique().tolist() == [step]
        assert view.data_ptr() == x.data_ptr()
        assert doubled.tolist() == [2, 2, 2]


@pytest.mark.long
def test_options() -> None:
    x = torch.ones(3, device="loom")

    def compiled(**options: Any) -> torch.Tensor:
        torch.compiler.reset()
        return torch.compile(lambda x: x.exp(), backend="loom", options=options)(x)

    assert torch.equal(compiled(cache_dir="x", tensor_parallel_size=2, replay=False), x.exp())
    assert compiled(mode=["compile_only"], tensor_parallel_size=100, npu="RBLN-CA22").shape == (3,)
    for bad in (
        {"numerics": "nearly"},
        {"no_such": 1},
        {"replay": "yes"},
        {"cache_dir": 3},
        {"tensor_parallel_size": "2"},
        {"tensor_parallel_size": 0},
        {"tensor_parallel_size": torch.loom.device_count() + 1},
        {"mode": ["compile_onli"]},
        {"mode": 3},
        {"cach_dir": "x"},
        {"npu": 3},
        {"npu": "rbln-ca25"},
    ):
        with pytest.raises(Exception, match=next(iter(bad))) as raised:
            compiled(**bad)
        assert isinstance(raised.value.__cause__ or raised.value, CompilerOptionError) or "Compiler" in str(
            raised.value
        )


@pytest.mark.slow
def test_ops_that_the_chip_lacks_are_named(warm_python: PythonRunner) -> None:
    shown = warm_python(PROGRAMS / "ops_that_the_chip_lacks_are_named.py", {"TORCH_LOOM_CHIP": "atom"})
    first, refused = shown.stdout.strip().splitlines()
    assert "float64" in first
    assert refused == "True"


@pytest.mark.long
def test_copied_models_compile_too() -> None:
    own = copy.deepcopy(model()).eval()
    x = torch.randn(1, 3, 16, device="loom")
    with torch.no_grad():
        assert torch.equal(torch.compile(own, backend="loom")(x), own(x))


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "size"), [("linear", (6,)), ("bilinear", (4, 7)), ("bicubic", (4, 7)), ("trilinear", (3, 4, 7))]
)
def test_interpolation_has_eagers_bits(mode: str, size: tuple[int, ...]) -> None:
    """PyTorch traces it as other ops, whose last bits differ, unless it is kept from that."""

    def resized(x: torch.Tensor) -> torch.Tensor:
        return (
            functional.interpolate(x, size=size, mode=mode)
            + functional.interpolate(x, scale_factor=1.0, mode=mode).mean()
        )

    torch.manual_seed(0)
    x = torch.randn(1, 3, *(range(5, 5 + len(size))), device="loom", requires_grad=True)
    compiled = torch.compile(resized, backend="loom", fullgraph=True)
    made, wanted = compiled(x), resized(x)
    assert torch.equal(made, wanted)
    (gradient,), (expected,) = (torch.autograd.grad(one.square().sum(), x) for one in (made, wanted))
    assert torch.equal(gradient, expected)
    for name in ("upsample_bilinear2d", "upsample_linear1d"):  # others trace it as before
        overload = getattr(torch.ops.aten, name).vec
        assert torch._C.DispatchKey.CompositeImplicitAutograd in overload.py_kernels
