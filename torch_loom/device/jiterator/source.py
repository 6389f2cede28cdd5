"""The C++ text around an element-wise function of a program: the loop, the loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_loom.kernels.host_compiler import ENTRY

# How an element is stored, and what a function computes with, as CUDA's: half precision in float.
STORED = {
    torch.bool: "bool",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.uint16: "uint16_t",
    torch.uint32: "uint32_t",
    torch.uint64: "uint64_t",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.complex64: "std::complex<float>",
    torch.complex128: "std::complex<double>",
}
_COMPUTED = {torch.float16: "float", torch.bfloat16: "float"}
_SCALARS = {bool: "bool", int: "int64_t", float: "double", complex: "std::complex<double>"}

# Bytes of a scalar's place in the buffer that a kernel is given.
SCALAR_BYTES = 16

# What CUDA's functions may use without asking, in front of the program's own text.
PRELUDE = r"""
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <cmath>
#include <complex>
#include <exception>
#include <limits>
#include <string>
#include <type_traits>

#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__

static thread_local jmp_buf loom_escape_;
extern "C" {
#define LOOM_HANDLER(name) __attribute__((visibility("hidden"))) void __ubsan_handle_##name
LOOM_HANDLER(divrem_overflow)(void*, uintptr_t, uintptr_t) { longjmp(loom_escape_, 2); }
LOOM_HANDLER(divrem_overflow_abort)(void*, uintptr_t, uintptr_t) { longjmp(loom_escape_, 1); }
// What follows wraps around.
LOOM_HANDLER(add_overflow)(void*, uintptr_t, uintptr_t) {}
LOOM_HANDLER(sub_overflow)(void*, uintptr_t, uintptr_t) {}
LOOM_HANDLER(mul_overflow)(void*, uintptr_t, uintptr_t) {}
LOOM_HANDLER(negate_overflow)(void*, uintptr_t) {}
#undef LOOM_HANDLER
}

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
"""

# Runs `body`, which may throw or divide by zero.
GUARD = r"""
template <typename F>
static const char* loom_guarded_(F&& body) {
  static thread_local std::string error;
  const int escaped = setjmp(loom_escape_);
  if (escaped == 1) return "integer division by zero";
  if (escaped == 2) return "integer division by zero, or of the most negative number by -1";
  try {
    body();
  } catch (const std::exception& thrown) {
    return (error = thrown.what()).c_str();
  } catch (...) {
    return "it threw something that is no std::exception";
  }
  return nullptr;
}
"""

_LOOP = r"""
// numbers: how many dimensions, their sizes, and for each tensor its strides in bytes.
extern "C" const char* ENTRY(void* const* addresses, const int64_t* numbers, const char* scalars) {
  const int64_t num_dims = numbers[0];
  const int64_t* const sizes = numbers + 1;
  const int64_t* const strides = sizes + num_dims;
  for (int64_t d = 0; d < num_dims; ++d) if (sizes[d] == 0) return nullptr;
  return loom_guarded_([&] {
    char* at[NUM_TENSORS];
    for (int t = 0; t < NUM_TENSORS; ++t) at[t] = static_cast<char*>(addresses[t]);
    const int64_t inner = num_dims == 0 ? 1 : sizes[num_dims - 1];
    int64_t step[NUM_TENSORS];
    for (int t = 0; t < NUM_TENSORS; ++t) step[t] = num_dims == 0 ? 0 : strides[t * num_dims + num_dims - 1];
    int64_t index[64] = {};
    while (true) {
      loom_row_(at, step, inner, scalars);
      int64_t d = num_dims - 2;
      for (; d >= 0; --d) {
        const bool is_last = ++index[d] == sizes[d];
        for (int t = 0; t < NUM_TENSORS; ++t) {
          at[t] += strides[t * num_dims + d] * (is_last ? 1 - sizes[d] : 1);
        }
        if (!is_last) break;
        index[d] = 0;
      }
      if (d < 0) return;
    }
  });
}
"""


def generate(
    code: str,
    name: str,
    common: torch.dtype,
    inputs: Sequence[torch.dtype],
    scalars: Sequence[type],
    num_outputs: int,
    returns: bool,
) -> str:
    """Return the C++ text of a kernel.

    Args:
        code: the program's text, which defines the template ``name``.
        common: the dtype that is computed with and that results have.
        inputs: the dtypes of the input tensors.
        scalars: the types of the arguments behind them: bool, int, float or complex.
        num_outputs: how many results there are.
        returns: whether the function returns its result, instead of writing to references at its end.
    """
    computed = _COMPUTED.get(common, STORED[common])
    stored = {STORED[dtype] for dtype in (common, *inputs)}
    headers = [
        f"#include <c10/util/{kind.removeprefix('c10::')}.h>" for kind in sorted(stored) if "c10" in kind
    ]
    arguments = [
        f"loom_load_<loom_T_, {STORED[dtype]}>(at[{num_outputs + i}] + i * step[{num_outputs + i}])"
        for i, dtype in enumerate(inputs)
    ]
    lines = []
    for i, kind in enumerate(scalars):
        lines.append(f"{_SCALARS[kind]} scalar{i}; memcpy(&scalar{i}, scalars + {i * SCALAR_BYTES}, ")
        lines[-1] += f"sizeof(scalar{i}));"
        arguments.append(f"static_cast<loom_T_>(scalar{i})" if kind is complex else f"scalar{i}")
    results = [f"result{i}" for i in range(num_outputs)]
    if returns:
        call = f"const auto result0 = ::{name}<loom_T_>({', '.join(arguments)});"
    else:
        call = f"loom_T_ {', '.join(results)}; ::{name}<loom_T_>({', '.join(arguments + results)});"
    stores = [
        f"loom_store_<{STORED[common]}, loom_T_>(at[{i}] + i * step[{i}], result{i});"
        for i in range(num_outputs)
    ]
    row = "\n".join(
        (
            f"using loom_T_ = {computed};",
            "template <typename T, typename S> static inline T loom_load_(const char* at) {",
            "  return static_cast<T>(*reinterpret_cast<const S*>(at));",
            "}",
            "template <typename S, typename T> static inline void loom_store_(char* at, T value) {",
            "  *reinterpret_cast<S*>(at) = static_cast<S>(value);",
            "}",
            "static void loom_row_(",
            "    char* const* at, const int64_t* step, int64_t size, const char* scalars) {",
            *(f"  {line}" for line in lines),
            "  for (int64_t i = 0; i < size; ++i) {",
            f"    {call}",
            *(f"    {store}" for store in stores),
            "  }",
            "}",
        )
    )
    loop = _LOOP.replace("ENTRY", ENTRY).replace("NUM_TENSORS", str(num_outputs + len(inputs)))
    return "\n".join((*headers, PRELUDE, GUARD, '#line 1 "code"', code, '#line 1 "generated"', row, loop))
