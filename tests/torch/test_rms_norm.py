"""RMS norm: one command where the chip has a kernel, and what it keeps for the backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import PythonRunner
from tests.device.tape_programs import Tape, listening

PROGRAMS = Path(__file__).parent / "programs" / "rms_norm"

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def kernels(tape: Tape) -> list[str]:
    return [record["name"] for record in tape.records if record["name"].startswith("aten::")]


def gradients(x: Tensor, weight: Tensor | None, shape: tuple[int, ...], eps: float | None) -> list[Tensor]:
    y = torch.rms_norm(x, shape, weight, eps)
    operands = [x] if weight is None else [x, weight]
    return [y.detach(), *torch.autograd.grad(y.float().square().sum(), operands)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_weight", [True, False])
def test_results_and_gradients_are_those_of_the_cpu(dtype: torch.dtype, has_weight: bool) -> None:
    torch.manual_seed(0)
    for sizes, shape, eps in (((3, 5, 8), (8,), None), ((3, 5, 8), (5, 8), 1e-3), ((8,), (8,), 1e-6)):
        x = torch.randn(sizes, dtype=dtype, requires_grad=True)
        weight = torch.randn(shape, dtype=dtype, requires_grad=True) if has_weight else None
        there = [None if one is None else one.detach().to("loom").requires_grad_() for one in (x, weight)]
        wanted = gradients(x, weight, shape, eps)
        found = gradients(there[0], there[1], shape, eps)
        # The forward pass has the parts of the CPU's, in their order; the backward pass has its own.
        torch.testing.assert_close(found[0].cpu(), wanted[0], rtol=0, atol=0)
        for one, other in zip(found[1:], wanted[1:], strict=True):
            torch.testing.assert_close(one.cpu(), other)


def test_one_command_each_and_little_is_kept() -> None:
    x = torch.randn(64, 1024, device="loom", dtype=torch.bfloat16, requires_grad=True)
    norm = nn.RMSNorm(1024, device="loom", dtype=torch.bfloat16)
    norm(x).sum().backward()
    torch.loom.synchronize()
    before = torch.loom.memory_allocated()
    with listening() as tape:
        y = norm(x)
    kept = torch.loom.memory_allocated() - before
    assert kernels(tape) == ["aten::_fused_rms_norm"]
    assert kept == y.nbytes + 512  # a float32 of each row, rounded up
    with listening() as tape:
        y.backward(torch.ones_like(y))
    assert kernels(tape).count("aten::_fused_rms_norm_backward") == 1


def test_on_a_busy_stream_captured_and_without_elements() -> None:
    x, norm = torch.randn(4, 8, device="loom"), nn.RMSNorm(8, device="loom")
    wanted = norm(x)
    with torch.loom.stream(torch.loom.Stream()):
        later = norm(x)
    torch.loom.synchronize()
    assert later.equal(wanted)
    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        captured = norm(x)
    x.mul_(3)
    graph.replay()
    assert captured.equal(norm(x))
    empty = torch.empty(0, 8, device="loom", requires_grad=True)
    norm(empty).sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == (0, 8)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["inductor", "loom"])
def test_compiled_programs(backend: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)).to("loom")
    x = torch.randn(4, 8, device="loom", requires_grad=True)
    compiled = torch.compile(model, backend=backend)
    results = []
    for call in (model, compiled):
        y = call(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])])
    for result, other in zip(*results, strict=True):
        if backend == "loom":
            assert result.equal(other)
        else:
            torch.testing.assert_close(result, other)


def test_what_does_not_fit_is_refused() -> None:
    x = torch.ones(2, 8, device="loom")
    with pytest.raises(RuntimeError, match=r"normalized_shape must be the last sizes of the input, \[2, 8\]"):
        torch.ops.aten._fused_rms_norm(x, [4], None, None)
    with pytest.raises(RuntimeError, match=r"weight must have the sizes \[8\], got \[4\]"):
        torch.ops.aten._fused_rms_norm(x, [8], torch.ones(4, device="loom"), None)
    for dtype, name in ((torch.int32, "Int"), (torch.float8_e4m3fn, "Float8_e4m3fn")):
        with pytest.raises(NotImplementedError, match=f"takes a floating or complex input .*, got {name}"):
            torch.ops.aten._fused_rms_norm(x.to(dtype), [8], None, None)
    for sizes in ([], [3, 1], [2, 8], [5, 2, 1]):
        rstd = torch.ones(sizes, device="loom")
        with pytest.raises(RuntimeError, match=r"rstd must have the sizes \[2, 1\], got \["):
            torch.ops.aten._fused_rms_norm_backward(x, x, [8], rstd, None, [True, True])


@pytest.mark.long
@pytest.mark.parametrize("chip", ["atom", "grayskull"])
def test_a_chip_without_the_kernel_runs_its_parts(chip: str, fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "a_chip_without_the_kernel_runs_its_parts.py", {"TORCH_LOOM_CHIP": chip})
