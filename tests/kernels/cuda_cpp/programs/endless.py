"""A kernel that does not end; it says when it runs."""

import torch

SOURCE = """
extern "C" __global__ void spin(volatile int* x) {
  printf("running\\n");
  fflush(stdout);
  while (x[0] == 0) {
  }
}
"""
x = torch.zeros(1, dtype=torch.int32, device="cuda")
torch.cuda._compile_kernel(SOURCE, "spin")((1,), (1,), (x,))
torch.cuda.synchronize()
