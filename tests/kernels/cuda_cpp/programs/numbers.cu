// Atomic functions, half precision, vectors, bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ int counter = 0;
__constant__ float factors[3] = {1.0f, 2.0f, 3.0f};

__global__ void atomics(int* i, unsigned* u, long long* l, float* f, double* d, __half2* h, __nv_bfloat16* b) {
  atomicAdd(&i[0], 1);
  atomicSub(&i[1], 1);
  atomicMax(&i[2], (int)threadIdx.x);
  atomicMin(&i[3], -(int)threadIdx.x);
  atomicXor(&i[4], (int)threadIdx.x);
  atomicOr(&i[5], 1 << (threadIdx.x % 8));
  atomicAnd(&i[6], ~(1 << (threadIdx.x % 8)));
  atomicExch(&i[7], 5);
  atomicCAS(&i[8], 0, 9);
  atomicInc(&u[0], 6);
  atomicDec(&u[1], 6);
  atomicAdd((unsigned long long*)&l[0], 1ull << 33);
  atomicMax(&l[1], (long long)threadIdx.x << 40);
  atomicAdd(&f[0], 0.5f);
  atomicAdd_block(&f[1], 0.25f);
  atomicAdd_system(&d[0], 0.5);
  atomicAdd(h, __floats2half2_rn(1.0f, 2.0f));
  atomicAdd(b, __float2bfloat16(1.0f));
}

__global__ void halves(const __half* x, const __nv_bfloat16* z, __half* y, __nv_bfloat16* w, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = __hadd(__hmul(x[i], x[i]), __float2half(1.0f));
  w[i] = hexp(__hfma(z[i], z[i], __float2bfloat16(0.5f)));
}

__global__ void pairs(const __half2* x, __half2* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hmax2(__hmul2(x[i], __half2half2(__low2half(x[i]))), __float2half2_rn(-1.0f));
}

__global__ void quarters(const float4* x, float4* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 v = __ldg(&x[i]);
  y[i] = make_float4(v.w, v.z, v.y * factors[1], v.x + factors[2]);
}

__global__ void bits(const unsigned* x, unsigned* y, int n) {
  const int i = threadIdx.x;
  y[0 * n + i] = __popc(x[i]);
  y[1 * n + i] = __clz((int)x[i]);
  y[2 * n + i] = __ffs((int)x[i]);
  y[3 * n + i] = __brev(x[i]);
  y[4 * n + i] = __umulhi(x[i], 0x9E3779B9u);
  y[5 * n + i] = __byte_perm(x[i], 0x01020304u, 0x7531);
  y[6 * n + i] = __funnelshift_l(x[i], 0xFFu, 4);
  y[7 * n + i] = (unsigned)__float2int_rn(__uint2float_rn(x[i] >> 8) / 2);
  unsigned lane;
  asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));
  y[8 * n + i] = lane;
}

__global__ void eighths(const float* x, float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = float(__nv_fp8_e4m3(x[i]));
  z[i] = float(__nv_fp8_e5m2(x[i]));
}

__global__ void functions(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  y[0 * n + i] = rsqrtf(x[i]);
  y[1 * n + i] = __fmaf_rn(x[i], 2.0f, 1.0f);
  y[2 * n + i] = fmaxf(x[i], __int_as_float(0x7fffffff));
  y[3 * n + i] = erfinvf(x[i] / 10.0f);
  y[4 * n + i] = normcdff(x[i]);
  y[5 * n + i] = __saturatef(x[i] - 1.0f);
  y[6 * n + i] = sinpif(x[i]);
  y[7 * n + i] = exp10f(x[i]);
}

__global__ void count(int* y) {
  atomicAdd(&counter, 1);
  auto twice = [] __device__(int v) { return 2 * v; };
  if (threadIdx.x == 0) y[blockIdx.x] = twice(3);
}
