# A descriptor's memory takes sums, minima and maxima of halves; from a function that is called, too.
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

OPS = {"add": torch.add, "max": torch.maximum, "min": torch.minimum}


@triton.jit
def reduce(descriptor, x, kind: tl.constexpr):
    if kind == "max":
        descriptor.atomic_max([0, 0], x)
    elif kind == "min":
        descriptor.atomic_min([0, 0], x)
    else:
        descriptor.atomic_add([0, 0], x)


@triton.jit
def kernel(descriptor, x_ptr, kind: tl.constexpr):
    at = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    reduce(descriptor, tl.load(x_ptr + at), kind)


drawn = torch.Generator().manual_seed(0)
for dtype in (torch.float16, torch.bfloat16):
    for kind, op in OPS.items():
        a, b = (torch.randn(8, 16, generator=drawn).to(dtype) for _ in range(2))
        out = a.cuda()
        kernel[(1,)](TensorDescriptor.from_tensor(out, [8, 16]), b.cuda(), kind)
        assert torch.equal(out.cpu(), op(a, b)), (dtype, kind)
