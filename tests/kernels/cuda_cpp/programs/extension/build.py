"""Builds the extensions beside it, as a program does: gradients, streams, captures, errors."""

import ast
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.cpp_extension import load

(folder,) = ast.literal_eval(sys.argv[1])
HERE = Path(__file__).parent
# One process for both: the compiler is what takes the time.
cell: Any = load("loom_test_cell", [str(HERE / "cell.cu")], build_directory=folder, extra_cuda_cflags=["-O1"])
load(
    "loom_test_muladd",
    [str(HERE / "muladd.cu")],
    build_directory=folder,
    extra_cuda_cflags=["-O1", "--use_fast_math"],
    is_python_module=False,
)


class Cell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: torch.Tensor, old: torch.Tensor) -> Any:
        new_h, new_cell = cell.forward(gates, old)
        ctx.save_for_backward(gates, new_cell)
        return new_h, new_cell

    @staticmethod
    def backward(ctx: Any, grad_h: torch.Tensor, grad_cell: torch.Tensor) -> Any:
        return tuple(cell.backward(grad_h.contiguous(), grad_cell.contiguous(), *ctx.saved_tensors))


torch.manual_seed(0)
gates = torch.randn(3, 3, 70, device="cuda", dtype=torch.float64, requires_grad=True)
old = torch.randn(3, 70, device="cuda", dtype=torch.float64, requires_grad=True)
h, c = Cell.apply(gates, old)
expected = old + gates[:, 0].sigmoid() * torch.nn.functional.elu(gates[:, 2])
torch.testing.assert_close(c, expected)
torch.testing.assert_close(h, expected.tanh() * gates[:, 1].sigmoid())
small = (gates[:1, :, :3].detach().requires_grad_(), old[:1, :3].detach().requires_grad_())
assert torch.autograd.gradcheck(Cell.apply, small)

ops = torch.ops.loom_test_muladd


@torch.library.register_fake("loom_test_muladd::mymuladd")
def _(a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
    return torch.empty_like(a)


def backward(ctx: Any, grad: torch.Tensor) -> Any:
    a, b = ctx.saved_tensors
    return grad * b, grad * a, None


def setup(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


torch.library.register_autograd("loom_test_muladd::mymuladd", backward, setup_context=setup)
a, b = (torch.randn(1000, device="cuda", requires_grad=True) for _ in range(2))
ops.mymuladd(a, b, 0.5).sum().backward()
torch.testing.assert_close(a.grad, b.detach())
torch.testing.assert_close(ops.mymuladd(a, b, 0.5), a * b + 0.5)
torch.testing.assert_close(ops.roundtrip(a.detach()), (a * a + 1).detach().cpu())

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    on_stream = ops.mymuladd(a.detach(), b.detach(), 2.0)
stream.synchronize()
torch.testing.assert_close(on_stream, (a * b + 2).detach())

x, y = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = ops.mymuladd(x, y, 1.0)
x.fill_(3)
graph.replay()
assert z.tolist() == [4.0] * 64

with torch.profiler.profile() as profile:
    ops.mymuladd(x, y, 1.0)
    torch.cuda.synchronize()
rows = [row for row in profile.events() if row.device_type == torch.autograd.DeviceType.CUDA]
assert any("muladd_kernel" in row.name for row in rows), [row.name for row in rows]

assert ops.bad_launch(x, False) == 9  # cudaErrorInvalidConfiguration
assert ops.bad_launch(x, False) == 9
try:
    ops.bad_launch(x, True)
except torch.AcceleratorError as error:
    assert "invalid configuration argument" in str(error) and "(2048, 1, 1)" in str(error), error
else:
    raise AssertionError("the launch was not refused")
properties = torch.cuda.get_device_properties(0)
assert ops.facts(0) == properties.multi_processor_count
assert ops.facts(1) == properties.major * 10 + properties.minor
assert ops.facts(2) == 32
assert ops.facts(3) == 8
print("done")
