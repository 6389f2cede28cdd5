# Floats of eight bits in Triton's kernels: every bfloat16 becomes the nearest one, as in PyTorch on the host.
import torch
import triton
import triton.language as tl

FORMATS = ((tl.float8e4nv, torch.float8_e4m3fn), (tl.float8e5, torch.float8_e5m2))


@triton.jit
def convert(x_ptr, narrow_ptr, wide_ptr, n: tl.constexpr, kind: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    narrow = tl.load(x_ptr + at).to(kind)
    tl.store(narrow_ptr + at, narrow.to(tl.uint8, bitcast=True))
    tl.store(wide_ptr + at, narrow.to(tl.float32))


x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
for kind, dtype in FORMATS:
    narrow = torch.empty(65536, dtype=torch.uint8, device="cuda")
    wide = torch.empty(65536, device="cuda")
    convert[(64,)](x.cuda(), narrow, wide, 1024, kind)
    # A GPU's conversions keep to the largest number, infinity too.
    highest = torch.finfo(dtype).max
    expected = x.float().clamp(-highest, highest).to(dtype)
    real = ~x.isnan()
    assert torch.equal(narrow.cpu()[real], expected.view(torch.uint8)[real])
    assert torch.equal(wide.cpu()[real], expected.float()[real])
    assert wide.cpu()[~real].isnan().all()
