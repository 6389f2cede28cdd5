// Words of packed numbers, modes of rounding, comparisons of halves, float8 from other types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <math_constants.h>
#include <math_functions.h>

#define WRITE(call) out[at++ * n + i] = (call)

__global__ void packed(const unsigned* x, const unsigned* y, unsigned* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned a = x[i], b = y[i];
  int at = 0;
  WRITE(__vadd2(a, b));
  WRITE(__vsub4(a, b));
  WRITE(__vaddss2(a, b));
  WRITE(__vaddus4(a, b));
  WRITE(__vsubss4(a, b));
  WRITE(__vsubus2(a, b));
  WRITE(__vavgs4(a, b));
  WRITE(__vavgu2(a, b));
  WRITE(__vhaddu4(a, b));
  WRITE(__vmaxs2(a, b));
  WRITE(__vminu2(a, b));
  WRITE(__vabsdiffs4(a, b));
  WRITE(__vcmpgtu2(a, b));
  WRITE(__vcmples4(a, b));
  WRITE(__vsetgeu4(a, b));
  WRITE(__vneg2(a));
  WRITE(__vnegss4(a));
  WRITE(__vabs4(a));
  WRITE(__vabsss2(a));
  WRITE(__vsads4(a, b));
  WRITE(__vsadu2(a, b));
  WRITE((unsigned)__dp2a_lo((int)a, (int)b, 5));
  WRITE(__dp2a_hi(a, b, 5u));
  WRITE((unsigned)__rhadd((int)a, (int)b));
  WRITE((unsigned)__vimax3_s32((int)a, (int)b, 7));
  WRITE(__viaddmin_u32(a, b, 7u));
}

// d: [4, 4]: towards 0, up, down, to nearest of a sum, a product, a quotient, a root; f: the same of float.
__global__ void rounded(const double* x, double* d, float* f) {
  const double a = x[0], b = x[1];
  const float g = (float)a, h = (float)b;
  const double wide[16] = {__dadd_rz(a, b), __dadd_ru(a, b), __dadd_rd(a, b), __dadd_rn(a, b),
                           __dmul_rz(a, b), __dmul_ru(a, b), __dmul_rd(a, b), __dmul_rn(a, b),
                           __ddiv_rz(a, b), __ddiv_ru(a, b), __ddiv_rd(a, b), __ddiv_rn(a, b),
                           __dsqrt_rz(a), __dsqrt_ru(a), __dsqrt_rd(a), __dsqrt_rn(a)};
  const float narrow[16] = {__fadd_rz(g, h), __fadd_ru(g, h), __fadd_rd(g, h), __fadd_rn(g, h),
                            __fmul_rz(g, h), __fmul_ru(g, h), __fmul_rd(g, h), __fmul_rn(g, h),
                            __fdiv_rz(g, h), __fdiv_ru(g, h), __fdiv_rd(g, h), __fdiv_rn(g, h),
                            __fsqrt_rz(g), __fsqrt_ru(g), __fsqrt_rd(g), __fsqrt_rn(g)};
  for (int i = 0; i < 16; ++i) d[i] = wide[i], f[i] = narrow[i];
}

// out: [7, n]
__global__ void narrowed(const float* x, const double* y, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int at = 0;
  WRITE(__half2float(__float2half_rz(x[i])));
  WRITE(__half2float(__float2half_ru(x[i])));
  WRITE(__half2float(__float2half_rd(x[i])));
  WRITE(__bfloat162float(__float2bfloat16_rz(x[i])));
  WRITE(__bfloat162float(__float2bfloat16_ru(x[i])));
  WRITE(__half2float(__double2half(y[i])));
  WRITE(__bfloat162float(__double2bfloat16(y[i])));
}

__global__ void compared(const __half2* x, unsigned* out, int n) {
  const int i = threadIdx.x;
  const __half2 a = x[i], b = __lowhigh2highlow(a);
  int at = 0;
  WRITE(__hlt2_mask(a, b));
  WRITE(__hneu2_mask(a, b));
  WRITE(__hbge2(a, b));
  WRITE(a == b);
  WRITE(__hisnan(__hmax_nan(a.x, a.y)));
  WRITE(__nv_cvt_halfraw_to_fp8(a.x, __NV_SATFINITE, __NV_E4M3));
  WRITE(__low2float(__hltu2(a, b)));
  WRITE(__low2float(__hadd2_rn(a, b)) == __low2float(__hadd2(a, b)));
  WRITE(__half2float(htanh_approx(a.x)) == __half2float(htanh(a.x)));
  WRITE(__fmaf_ieee_rz(3, 1, -1e-9F) < 3);
  WRITE(alignof(double4_32a) + static_cast<int>(make_longlong4_16a(1, 2, 3, 4).w));
}

__global__ void bessel(const float* x, float* out, int n) {
  const int i = threadIdx.x;
  int at = 0;
  WRITE(cyl_bessel_i0f(x[i]));
  WRITE(cyl_bessel_i1f(x[i]));
  WRITE(x[i] < CUDART_NORM_HUGE_F ? normf(2, x) * CUDART_THIRD_F : 0);
}

__global__ void quarters(const float* x, float* out, int n) {
  const int i = threadIdx.x;
  int at = 0;
  WRITE((float)__nv_fp4_e2m1(x[i]));
  WRITE(__nv_cvt_float2_to_fp4x2(make_float2(x[i], 1.5f), __NV_E2M1, cudaRoundNearest));
  WRITE((float)__nv_fp8_e8m0(x[i]));
  WRITE(__nv_cvt_float_to_e8m0(x[i], __NV_SATFINITE, cudaRoundZero));
}

__global__ void whole(const long long* x, float* out, int n) {
  const int i = threadIdx.x;
  int at = 0;
  WRITE(__half2float(__int2half_rz((int)x[i])));
  WRITE(__half2float(__int2half_ru((int)x[i])));
  WRITE(__half2float(__ll2half_rd(x[i])));
  WRITE(__bfloat162float(__ll2bfloat16_rz(x[i])));
  WRITE(__bfloat162float(__uint2bfloat16_rn((unsigned)x[i])));
  WRITE(__half2short_rz(__ll2half_rn(x[i])));
  WRITE(__half2uchar_rz(__ll2half_rn(x[i])));
}
