// Rows of a generated table, sorted by the name of an op.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace loom {

// The row with this `full_name`, or null.
template <typename Row, size_t kSize>
const Row* find_row(const Row (&rows)[kSize], std::string_view full_name) {
  const auto* const found =
      std::lower_bound(std::begin(rows), std::end(rows), full_name,
                       [](const Row& row, std::string_view name) { return row.full_name < name; });
  return found != std::end(rows) && found->full_name == full_name ? found : nullptr;
}

}  // namespace loom
