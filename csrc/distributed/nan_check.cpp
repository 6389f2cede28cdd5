#include "distributed/nan_check.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>

#include <cmath>

namespace loom::distributed {

namespace {

// The index of the first NaN, or −1.
int64_t first_nan(const Bytes& bytes, c10::ScalarType dtype) {
  int64_t found = -1;
  AT_DISPATCH_V2(dtype, "nan_found", AT_WRAP([&] {
                   const auto* const values = reinterpret_cast<const scalar_t*>(bytes.data);
                   const auto count = static_cast<int64_t>(bytes.size / sizeof(scalar_t));
                   for (int64_t i = 0; i < count && found < 0; ++i) {
                     if (std::isnan(static_cast<double>(static_cast<float>(values[i])))) found = i;
                   }
                 }),
                 AT_EXPAND(AT_FLOATING_TYPES), c10::kHalf, c10::kBFloat16, AT_EXPAND(AT_FLOAT8_TYPES));
  return found;
}

}  // namespace

std::string nan_found(const Task& task, int rank) {
  const auto dtype = static_cast<c10::ScalarType>(task.operation.dtype);
  if (task.operation.dtype < 0 || !c10::isFloatingType(dtype)) return "";
  for (const Bytes& bytes : task.gives) {
    const int64_t index = first_nan(bytes, dtype);
    if (index >= 0) {
      return "rank " + std::to_string(rank) + " gives a NaN, at element " + std::to_string(index) + ", to " +
             task.operation.text() + ". TORCH_NCCL_NAN_CHECK is set: find what computes it, or unset that";
    }
  }
  return "";
}

}  // namespace loom::distributed
