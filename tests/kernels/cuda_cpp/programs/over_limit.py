"""Kernels that do not end: each is named with its block, and the device goes on."""

import torch

SOURCE = """
extern "C" __global__ void spin(volatile int* x) {
  if (blockIdx.x == 2) while (x[0] == 0) {}
}
extern "C" __global__ void meets(int* x) {
  do __syncthreads(); while (x[0] == 0);
}
"""
x = torch.zeros(1, dtype=torch.int32, device="cuda")
side = torch.cuda.Stream()
for name, stream in (("spin", None), ("meets", None), ("spin", side)):
    try:
        with torch.cuda.stream(stream):
            torch.cuda._compile_kernel(SOURCE, name)((3,), (64,), (x,))
        torch.cuda.synchronize()
    except torch.AcceleratorError as error:
        print(error.error_code, str(error).replace("\n", " | "))
print((x + 1).item())
