# A kernel that does not end is an error behind the time limit, with its line.
import torch
import triton
import triton.language as tl

from tests.kernels.programs import kernels


@triton.jit
def waits_for_a_later_program(flag, out):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag, 0) == 0:  # it comes in order
            pass
    else:
        tl.atomic_xchg(flag, 1)
    tl.store(out, 1)


flag = torch.zeros(1, dtype=torch.int32, device="cuda")
try:
    waits_for_a_later_program[(1,)](flag, flag)
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print(error.error_code, error)
x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
kernels.one[(1,)](x, out)
assert out[0].item() == 2
