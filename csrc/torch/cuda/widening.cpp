#include "torch/cuda/widening.h"

#include <algorithm>
#include <iterator>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using Type = c10::ScalarType;

#include "torch/generated/widened_dtypes.inc"

struct Widened {
  std::string_view full_name;
  DtypeSet dtypes;
};

// Sorted by name.
constexpr Widened kWidened[] = {
#include "torch/generated/widened.inc"
};
constexpr Widened kWidenedSparse[] = {
#include "torch/generated/widened_sparse.inc"
};

template <size_t kSize>
DtypeSet found_in(const Widened (&table)[kSize], std::string_view full_name) {
  if (device_type() != c10::DeviceType::CUDA) return 0;
  const auto* const found = std::lower_bound(
      std::begin(table), std::end(table), full_name,
      [](const Widened& widened, std::string_view name) { return widened.full_name < name; });
  return found != std::end(table) && found->full_name == full_name ? found->dtypes : 0;
}

}  // namespace

DtypeSet widened_dtypes_of(std::string_view full_name) { return found_in(kWidened, full_name); }

DtypeSet widened_sparse_dtypes_of(std::string_view full_name) { return found_in(kWidenedSparse, full_name); }

}  // namespace loom::glue
