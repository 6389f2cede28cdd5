// Rows of a table that are sorted by a name, as those of generated tables are by an op's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace loom {

// The row that has this name in the member `key`, or null.
template <typename Row, size_t kSize, typename Key = decltype(&Row::full_name)>
const Row* find_row(const Row (&rows)[kSize], std::string_view name, Key key = &Row::full_name) {
  const auto* const found =
      std::lower_bound(std::begin(rows), std::end(rows), name,
                       [key](const Row& row, std::string_view wanted) { return row.*key < wanted; });
  return found != std::end(rows) && found->*key == name ? found : nullptr;
}

}  // namespace loom
