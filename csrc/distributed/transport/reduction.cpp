#include "distributed/transport/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "driver/error.h"

// Loops over memory are what this file is for.
#pragma GCC push_options
#pragma GCC optimize("O3")

namespace loom::distributed {

namespace {

using c10::ScalarType;

// Arithmetic of short formats is that of float, rounded.
template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <typename F>
void for_type(ScalarType dtype, F&& f) {
  switch (dtype) {
    case ScalarType::Byte:
      return f(uint8_t{});
    case ScalarType::Char:
      return f(int8_t{});
    case ScalarType::Short:
      return f(int16_t{});
    case ScalarType::Int:
      return f(int32_t{});
    case ScalarType::Long:
      return f(int64_t{});
    case ScalarType::UInt16:
      return f(uint16_t{});
    case ScalarType::UInt32:
      return f(uint32_t{});
    case ScalarType::UInt64:
      return f(uint64_t{});
    case ScalarType::Half:
      return f(c10::Half{});
    case ScalarType::BFloat16:
      return f(c10::BFloat16{});
    case ScalarType::Float8_e4m3fn:
      return f(c10::Float8_e4m3fn{});
    case ScalarType::Float8_e5m2:
      return f(c10::Float8_e5m2{});
    case ScalarType::Float:
      return f(float{});
    case ScalarType::Double:
      return f(double{});
    default:
      throw InvalidArgument(std::string("collectives: no reduction of ") + c10::toString(dtype));
  }
}

template <typename T, typename F>
void each(void* result, const void* operand, size_t bytes, F f) {
  T* const __restrict to = static_cast<T*>(result);
  const T* const __restrict from = static_cast<const T*>(operand);
  const size_t count = bytes / sizeof(T);
  for (size_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(f(static_cast<Wide<T>>(to[i]), static_cast<Wide<T>>(from[i])));
}

// As NCCL, the sum of bools is their disjunction, their product the conjunction.
void combine_bools(Reduction reduction, void* result, const void* operand, size_t bytes) {
  const bool is_and =
      reduction == Reduction::kProduct || reduction == Reduction::kMin || reduction == Reduction::kAnd;
  each<uint8_t>(result, operand, bytes, [=](int a, int b) {
    const bool left = a != 0, right = b != 0;
    return reduction == Reduction::kXor ? left != right : is_and ? left && right : left || right;
  });
}

// Wraps around instead of overflowing.
template <typename T>
auto unsigned_of(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<std::common_type_t<T, int>>>(value);
  } else {
    return value;
  }
}

}  // namespace

void check_reduction(Reduction reduction, ScalarType dtype) {
  const bool is_bitwise =
      reduction == Reduction::kAnd || reduction == Reduction::kOr || reduction == Reduction::kXor;
  const bool is_bool = dtype == ScalarType::Bool;
  if (reduction == Reduction::kAverage && is_bool) {
    throw InvalidArgument("Cannot use ReduceOp.AVG with Boolean inputs");
  }
  if (is_bitwise && !c10::isIntegralType(dtype, /*includeBool=*/true)) {
    throw InvalidArgument(std::string("Cannot use ReduceOp.") + name_of(reduction) + " with " +
                          c10::toString(dtype) + " tensors, only with integers");
  }
  if (reduction == Reduction::kScaledSum && !c10::isFloatingType(dtype)) {
    throw InvalidArgument(std::string("PREMUL_SUM needs tensors of floating point, not ") +
                          c10::toString(dtype));
  }
  if (!is_bool) for_type(dtype, [](auto) {});
}

void combine(Reduction reduction, ScalarType dtype, void* result, const void* operand, size_t bytes) {
  if (dtype == ScalarType::Bool) return combine_bools(reduction, result, operand, bytes);
  for_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    switch (reduction) {
      case Reduction::kProduct:
        return each<T>(result, operand, bytes, [](W a, W b) { return unsigned_of(a) * unsigned_of(b); });
      case Reduction::kMin:
        return each<T>(result, operand, bytes, [](W a, W b) { return b < a || b != b ? b : a; });
      case Reduction::kMax:
        return each<T>(result, operand, bytes, [](W a, W b) { return b > a || b != b ? b : a; });
      case Reduction::kAnd:
      case Reduction::kOr:
      case Reduction::kXor:
        if constexpr (std::is_integral_v<T>) {
          if (reduction == Reduction::kAnd)
            return each<T>(result, operand, bytes, [](T a, T b) { return a & b; });
          if (reduction == Reduction::kOr)
            return each<T>(result, operand, bytes, [](T a, T b) { return a | b; });
          return each<T>(result, operand, bytes, [](T a, T b) { return a ^ b; });
        }
        return;
      default:
        return each<T>(result, operand, bytes, [](W a, W b) { return unsigned_of(a) + unsigned_of(b); });
    }
  });
}

void scale(ScalarType dtype, void* data, size_t bytes, double factor) {
  for_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    // The factor has the dtype of the tensors.
    const auto own = static_cast<Wide<T>>(static_cast<T>(static_cast<Wide<T>>(factor)));
    T* const values = static_cast<T*>(data);
    for (size_t i = 0; i < bytes / sizeof(T); ++i)
      values[i] = static_cast<T>(static_cast<Wide<T>>(values[i]) * own);
  });
}

void divide(ScalarType dtype, void* data, size_t bytes, int divisor) {
  for_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const values = static_cast<T*>(data);
    for (size_t i = 0; i < bytes / sizeof(T); ++i) {
      values[i] = static_cast<T>(static_cast<Wide<T>>(values[i]) / static_cast<Wide<T>>(divisor));
    }
  });
}

}  // namespace loom::distributed

#pragma GCC pop_options
