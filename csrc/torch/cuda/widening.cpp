#include "torch/cuda/widening.h"

#include "util/sorted_rows.h"

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
  const Widened* const found = find_row(table, full_name);
  return found == nullptr ? 0 : found->dtypes;
}

}  // namespace

DtypeSet widened_dtypes_of(std::string_view full_name) { return found_in(kWidened, full_name); }

DtypeSet widened_sparse_dtypes_of(std::string_view full_name) { return found_in(kWidenedSparse, full_name); }

}  // namespace loom::glue
