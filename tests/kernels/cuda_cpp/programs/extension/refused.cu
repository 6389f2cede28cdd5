__global__ void product(float* a, float b) {
  // Tensor cores have no counterpart.
#define PRODUCT(x) asm("mma.sync.aligned.m16n8k8 %0, %1;" : "=f"(x) : "f"(b))
  PRODUCT(a[0]);
}
