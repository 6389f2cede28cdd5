// Tensor cores, packed registers, predicates and asynchronous copies by inline PTX, as published kernels
// write it.
#include <cstdint>

__device__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// One tile of 16 x 8: A of 16 x 16 by rows, B of 16 x 8 by rows, through shared memory.
__global__ void product_of_halves(const uint16_t* a, const uint16_t* b, float* d) {
  __shared__ alignas(16) uint16_t left[16][16], right[16][8];
  const unsigned lane = threadIdx.x, group = lane / 4, turn = lane % 4;
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&left[lane / 2][lane % 2 * 8])),
      "l"(a + lane * 8));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(
                   shared_address(&right[lane / 2][lane % 2 * 4])),
               "l"(b + lane * 4), "n"(8), "r"(8));
  asm volatile("cp.async.commit_group;\n" ::);
  asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
  __syncthreads();
  uint32_t ra[4], rb[2];
  float c[4] = {1, 1, 1, 1};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
               : "r"(shared_address(&left[lane % 16][lane / 16 * 8])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(rb[0]), "=r"(rb[1])
               : "r"(shared_address(&right[lane % 16][0])));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + turn * 2 + i % 2] = c[i];
}

// The registers filled as the PTX ISA draws them. A of 16 x 32 and B of 8 x 32 by rows.
__global__ void product_of_bytes(const uint32_t* a, const uint32_t* b, int* d) {
  const unsigned group = threadIdx.x / 4, turn = threadIdx.x % 4;
  int c[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[group * 8 + turn]), "r"(a[(group + 8) * 8 + turn]), "r"(a[group * 8 + turn + 4]),
        "r"(a[(group + 8) * 8 + turn + 4]), "r"(b[group * 8 + turn]), "r"(b[group * 8 + turn + 4]), "r"(c[0]),
        "r"(c[1]), "r"(c[2]), "r"(c[3]));
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + turn * 2 + i % 2] = c[i];
}
__global__ void product_of_floats(const float* a, const float* b, float* d) {
  const unsigned group = threadIdx.x / 4, turn = threadIdx.x % 4;
  uint32_t ra[4], rb[2];
  const float given[] = {a[group * 8 + turn],           a[(group + 8) * 8 + turn], a[group * 8 + turn + 4],
                         a[(group + 8) * 8 + turn + 4], b[group * 8 + turn],       b[group * 8 + turn + 4]};
  for (int i = 0; i < 6; ++i)
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(i < 4 ? ra[i] : rb[i - 4]) : "f"(given[i]));
  float c[4];
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(0.f));
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + turn * 2 + i % 2] = c[i];
}

__global__ void scalars(const int* x, int* out) {
  __shared__ int s[64];
  const int t = threadIdx.x;
  const uint32_t at = shared_address(s) + 4 * t;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x[t]));
  __syncthreads();
  int other, kept, table;
  asm volatile("ld.shared.s32 %0, [%1+128];" : "=r"(other) : "r"(at - 128 * (t >= 32)));
  // The larger of two, by a predicate, and a copy that only some make.
  asm("{\n.reg .pred p;\nsetp.gt.s32 p, %1, %2;\nselp.s32 %0, %1, %2, p;\n}"
      : "=r"(kept)
      : "r"(x[t]), "r"(other));
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(table) : "r"(x[t]), "r"(other), "r"(12));
  asm volatile("{ .reg .pred %%q; setp.ne.b32 %%q, %0, 0; @%%q st.shared.u32 [%1], %2; }" ::"r"(t % 2),
               "r"(at), "r"(7));
  uint16_t low, high;
  uint32_t both, halves;
  asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(x[t]));
  asm("mov.b32 %0, {%1, %2};" : "=r"(both) : "h"(high), "h"(low));
  asm("fma.rn.f16x2 %0, %1, %2, %3;"
      : "=r"(halves)
      : "r"(0x40003C00), "r"(0x42004200), "r"(0x3C003C00));  // (2, 1) 3 + 1
  out[t] = kept;
  out[64 + t] = table;
  out[128 + t] = s[t];
  out[192 + t] = static_cast<int>(both);
  out[256 + t] = static_cast<int>(halves);
}

// Registers are bits, and instructions have types. Each result beside what it must be.
__global__ void typed(unsigned* out) {
  unsigned n = 0;
  const auto is = [&](unsigned found, unsigned wanted) { out[n++] = found, out[n++] = wanted; };
  float x = 1.5f, y;
  unsigned r, low, high;
  unsigned long long wide;
  uint16_t a = 0x3C00, z = 0x4000, h;
  asm("add.f16 %0, %1, %2;" : "=h"(h) : "h"(a), "h"(z));
  is(h, 0x4200);
  asm("{ .reg .pred p; setp.ne.u32 p, %1, 0; not.pred p, p; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"(5));
  is(r, 0);
  asm("mov.b32 %0, %1;" : "=r"(r) : "f"(x));
  is(r, 0x3FC00000);
  asm("mov.b64 %0, {%1, %2};" : "=l"(wide) : "f"(x), "f"(2.5f));
  is(static_cast<unsigned>(wide), 0x3FC00000);
  asm("mov.b64 {%0, %1}, %2;" : "=f"(y), "=r"(r) : "l"(wide));
  is(__float_as_uint(y), 0x3FC00000);
  is(r, 0x40200000);
  asm("{ .reg .b32 t; mov.b32 t, %1; add.f32 %0, t, t; }" : "=f"(y) : "f"(x));
  is(__float_as_uint(y), 0x40400000);
  asm("max.s32 %0, %1, %2;" : "=r"(r) : "r"(0xFFFFFFFFU), "r"(1U));
  is(r, 1);
  asm("max.u32 %0, %1, %2;" : "=r"(r) : "r"(-1), "r"(1));
  is(r, 0xFFFFFFFF);
  asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(1), "r"(32));
  is(r, 0);
  asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(-8), "r"(1));
  is(r, 0xFFFFFFFC);
  __shared__ unsigned s[4];
  s[threadIdx.x] = threadIdx.x + 7;
  int address = static_cast<int>(__cvta_generic_to_shared(s));
  asm("ld.shared::cta.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(address));
  is(low, 7);
  float* p = reinterpret_cast<float*>(s);
  asm volatile("st.shared.b32 [%0+4], %1;" ::"r"(address), "f"(x));
  is(s[1], 0x3FC00000);
  asm("add.u64 %0, %1, 4;" : "=l"(p) : "l"(p));
  is(static_cast<unsigned>(p - reinterpret_cast<float*>(s)), 1);
  unsigned q = 2;
  asm("lop3.b32 %0, %1, %1, %1, 0x80;" : "=r"(r) : "r"(q++));
  is(q, 3);
  asm("mul.f32 %0, %1, %1;\n\tadd.f32 %0, %0, %1;" : "=f"(y) : "f"(x));
  is(__float_as_uint(y), 0x40700000);  // 3.75
}

// Blocks wait for those behind them, which on a GPU run at once.
__global__ void waits_for_the_next(unsigned* flags, int* order) {
  const unsigned block = blockIdx.x;
  unsigned flag = block + 1 == gridDim.x;
  while (flag == 0)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(flag) : "l"(flags + block + 1) : "memory");
  order[block] = atomicAdd(order + gridDim.x, 1);
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags + block), "r"(1) : "memory");
}
