#include "torch/ops/widening.h"

#include <algorithm>
#include <iterator>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using fallback::DtypeSet;
using fallback::set_of;
using Type = c10::ScalarType;

#include "torch/ops/generated/widened_dtypes.inc"

struct Widened {
  std::string_view full_name;
  DtypeSet dtypes;
};

// Sorted by name.
constexpr Widened kWidened[] = {
#include "torch/ops/generated/widened.inc"
};

}  // namespace

DtypeSet widened_dtypes_of(std::string_view full_name) {
  if (device_type() != c10::DeviceType::CUDA) return 0;
  const auto* const found = std::lower_bound(
      std::begin(kWidened), std::end(kWidened), full_name,
      [](const Widened& widened, std::string_view name) { return widened.full_name < name; });
  return found != std::end(kWidened) && found->full_name == full_name ? found->dtypes : 0;
}

}  // namespace loom::glue
