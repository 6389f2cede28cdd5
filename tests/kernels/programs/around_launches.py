"""What Triton and PyTorch have around a launch: heuristics, hooks, warmup, ops made of kernels."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton
from triton import knobs

from tests.kernels.programs import kernels

x = torch.rand(100, device="cuda")
grid = (1,)


@triton.heuristics({"IS_EVEN": lambda given: given["size"] % given["BLOCK"] == 0})
@triton.jit
def doubled(x, out, size, BLOCK: tl.constexpr, IS_EVEN: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    if IS_EVEN:
        tl.store(out + at, tl.load(x + at) * 2)
    else:
        tl.store(out + at, tl.load(x + at, mask=at < size) * 2, mask=at < size)


def check_heuristics() -> None:
    out = torch.zeros_like(x)
    doubled[grid](x, out, 100, BLOCK=128)
    assert torch.equal(out, x * 2)
    out.zero_()
    doubled[grid](x, out, 64, BLOCK=64)
    assert torch.equal(out[:64], x[:64] * 2)
    assert not out[64:].any()


def check_hooks() -> None:
    called = []

    def entered(metadata) -> None:
        called.append(("enter", metadata.get()["name"], out[0].item()))

    def left(metadata) -> None:
        called.append(("exit", metadata.get()["name"], out[0].item()))

    out = torch.zeros_like(x)
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    for hook, function in zip(hooks, (entered, left), strict=True):
        hook.add(function)
    kernels.scale[grid](x, out, 100, 3.0, BLOCK=128)
    for hook, function in zip(hooks, (entered, left), strict=True):
        hook.remove(function)
    kernels.scale[grid](x, out, 100, 4.0, BLOCK=128)
    assert called == [("enter", "scale", 0), ("exit", "scale", (x[0] * 3).item())], called


def check_warmup() -> None:
    """A kernel is compiled without its memory, and launched by what that returns."""
    compiled = kernels.scale.warmup(torch.float32, torch.float32, 100, 5.0, BLOCK=128, grid=grid)
    assert {"ttir", "cpp"} <= set(compiled.asm)
    out = torch.zeros_like(x)
    compiled[1, 1, 1](x, out, 100, 5.0, 128)
    assert torch.equal(out, x * 5)


@triton_op("loom_kernels::scaled", mutates_args={})
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(kernels.scale)[grid](x, out, x.numel(), factor, BLOCK=128)
    return out


def check_ops() -> None:
    scaled.register_autograd(
        lambda context, gradient: (scaled(gradient.contiguous(), context.factor), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    leaf = x.clone().requires_grad_()
    out = scaled(leaf, 6.0)
    assert torch.equal(out, x * 6)
    out.sum().backward()
    assert leaf.grad.eq(6).all()
    torch.library.opcheck(scaled, (x, 6.0), test_utils=("test_schema", "test_faketensor"))


check_heuristics()
check_hooks()
check_warmup()
check_ops()
