# Under TORCH_LOOM_PROTECT=1 kernels reach memory by addresses that they load or are given as numbers: those
# in tables, and arguments of functions that are not inlined.
import torch
import triton
import triton.language as tl

from tests.kernels.programs import kernels


@triton.jit(noinline=True)
def element(x, at):
    return tl.load(x + at)


@triton.jit
def by_function(x, out):
    tl.store(out, element(x, 3) + 1)


@triton.jit
def by_table(table, out, N: tl.constexpr):  # noqa: N803
    at = tl.arange(0, N)
    for number in range(2):
        tensor = tl.load(table + number).to(tl.pointer_type(tl.float32))
        tl.store(out + number * N + at, tl.load(tensor + at))


x, y, out = torch.arange(16.0, device="cuda"), torch.ones(16, device="cuda"), torch.zeros(32, device="cuda")
by_function[(1,)](x, out)
assert out[0].item() == 4
kernels.at_address[(1,)](x.data_ptr() + 8, out)
assert out[0].item() == 2
table = torch.tensor([x.data_ptr(), y.data_ptr()], dtype=torch.int64, device="cuda")
by_table[(1,)](table, out, 16)
assert torch.equal(out, torch.cat([x, y]))
table[1] = 0
try:
    by_table[(1,)](table, out, 16)
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print("memory that is no tensor's" in str(error))
