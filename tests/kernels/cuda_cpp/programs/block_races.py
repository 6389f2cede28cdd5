"""What the sanitizer finds between blocks of a launch, between launches, and in memory that nothing wrote."""

import torch

SOURCE = """
extern "C" __global__ void sums(const int* x, int* total, int by_atomic) {
  const int own = x[blockIdx.x * blockDim.x + threadIdx.x];
  if (by_atomic) atomicAdd(total, own);
  else if (threadIdx.x == 0) total[0] += own;  // sums
}
extern "C" __global__ void finds(const int* x, int* found) {
  if (x[blockIdx.x * blockDim.x + threadIdx.x] % 5 == 0) found[0] = 1;
}
extern "C" __global__ void last_block(const int* x, int* parts, unsigned* count, int* total) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) parts[blockIdx.x] = x[blockIdx.x];
  __threadfence();
  if (threadIdx.x == 0) is_last = atomicInc(count, gridDim.x) == gridDim.x - 1;
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    for (int i = 0; i < gridDim.x; ++i) total[0] += parts[i];
  }
}
extern "C" __global__ void copies(const int* x, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[i];  // copies
}
"""
kernels = {
    name: torch.cuda._compile_kernel(SOURCE, name) for name in ("sums", "finds", "last_block", "copies")
}
x = torch.arange(64, dtype=torch.int32, device="cuda")
total = torch.zeros(1, dtype=torch.int32, device="cuda")


def run(name, *arguments) -> str:
    try:
        kernels[name]((4,), (16,), arguments)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " | ")
    return "nothing"


print(run("sums", x, total, 1), total.item())
print(run("sums", x, total, 0))
print(run("finds", x, total))
parts, count = torch.zeros(4, dtype=torch.int32, device="cuda"), torch.zeros_like(total)
print(run("last_block", x, parts, count, torch.zeros_like(total)))
unwritten = torch.empty(64, dtype=torch.int32, device="cuda")
print(run("copies", unwritten, torch.empty_like(x)))
print(run("copies", x, unwritten), run("copies", unwritten, torch.empty_like(x)))

# Two streams read one tensor; then one writes what the other reads.
side, outs = torch.cuda.Stream(), [torch.zeros_like(x) for _ in range(2)]
side.wait_stream(torch.cuda.current_stream())
kernels["copies"]((4,), (16,), (x, outs[0]))
with torch.cuda.stream(side):
    kernels["copies"]((4,), (16,), (x, outs[1]))
    try:
        kernels["copies"]((4,), (16,), (outs[1], x))
    except Exception as error:
        print(type(error).__name__)
