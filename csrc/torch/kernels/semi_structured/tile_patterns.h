// Patterns of tiles of four by four, of which two elements of each row and column stay.
#pragma once

#include <optional>
#include <string_view>

#include "torch/kernels/semi_structured/packing.h"

namespace loom::glue::semi_structured {

using Tile = std::array<float, kSquare * kSquare>;

struct Algorithm {
  uint16_t (*pattern)(const Tile&);
  bool is_absolute;

  static std::optional<Algorithm> named(std::string_view name);
};

// In multiples of what a warp computes.
Tensor padded(const Tensor& matrix, double with);
// Which elements stay.
Tensor pattern_of(const Tensor& matrix, const Algorithm& algorithm);

// Eight bytes for each square of eight by eight: a bit for each element, tile by tile.
std::array<int64_t, 3> mask_sizes(const Tensor& matrix);
Tensor packed_masks(const Tensor& pattern, const Tensor& matrix);
// As large as `padded` makes the matrix.
Tensor unpacked_masks(const Tensor& given, const Tensor& matrix);

}  // namespace loom::glue::semi_structured
