#include "torch/kernels/semi_structured/tile_patterns.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace loom::glue::semi_structured {

namespace {

// From the smallest to the greatest.
template <size_t size>
std::array<uint8_t, size> sorted(const float* values) {
  std::array<uint8_t, size> places;
  std::iota(places.begin(), places.end(), uint8_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [values](uint8_t a, uint8_t b) { return values[a] < values[b]; });
  return places;
}

// The greatest of all that fit.
uint16_t greedy_pattern(const Tile& tile) {
  std::array<int, kSquare> in_row{}, in_column{};
  const auto places = sorted<kSquare * kSquare>(tile.data());
  uint16_t pattern = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    int &row = in_row[*place / kSquare], &column = in_column[*place % kSquare];
    if (row == 2 || column == 2) continue;
    ++row, ++column;
    pattern = static_cast<uint16_t>(pattern | (1u << *place));
  }
  return pattern;
}

// Row by row, so that none depends on later ones: one element of the first two rows, two of the others.
uint16_t causal_pattern(const Tile& tile) {
  std::array<int, kSquare> in_column{};
  uint16_t pattern = 0;
  for (int64_t row = 0; row < kSquare; ++row) {
    int left = row < 2 ? 1 : 2;
    const auto places = sorted<kSquare>(tile.data() + row * kSquare);
    for (auto place = places.rbegin(); place != places.rend() && left > 0; ++place) {
      if (in_column[*place] == 2) continue;
      ++in_column[*place], --left;
      pattern = static_cast<uint16_t>(pattern | (1u << (row * kSquare + *place)));
    }
  }
  return pattern;
}

}  // namespace

std::optional<Algorithm> Algorithm::named(std::string_view name) {
  if (name.empty() || name == "largest_values_greedy") return Algorithm{greedy_pattern, false};
  if (name == "largest_abs_values_greedy") return Algorithm{greedy_pattern, true};
  if (name == "causal1122") return Algorithm{causal_pattern, false};
  return std::nullopt;
}

Tensor padded(const Tensor& matrix, double with) {
  Tensor whole =
      at::full({round_up(matrix.size(0), kWarp), round_up(matrix.size(1), kWarp)}, with, matrix.options());
  whole.narrow(0, 0, matrix.size(0)).narrow(1, 0, matrix.size(1)).copy_(matrix);
  return whole;
}

Tensor pattern_of(const Tensor& matrix, const Algorithm& algorithm) {
  const Tensor values = algorithm.is_absolute ? at::abs(matrix.to(at::kFloat)) : matrix.to(at::kFloat);
  const Tensor whole = padded(values, -std::numeric_limits<double>::infinity());
  const int64_t rows = whole.size(0), columns = whole.size(1);
  Tensor mask = at::zeros({rows, columns}, whole.options().dtype(at::kBool));
  const auto* from = whole.const_data_ptr<float>();
  auto* to = mask.mutable_data_ptr<bool>();
  for (int64_t row = 0; row < rows; row += kSquare) {
    for (int64_t column = 0; column < columns; column += kSquare) {
      Tile tile;
      const auto at = [&](int64_t i) { return (row + i / kSquare) * columns + column + i % kSquare; };
      for (int64_t i = 0; i < kSquare * kSquare; ++i) tile[static_cast<size_t>(i)] = from[at(i)];
      const uint16_t pattern = algorithm.pattern(tile);
      for (int64_t i = 0; i < kSquare * kSquare; ++i) to[at(i)] = ((pattern >> i) & 1) != 0;
    }
  }
  return mask;
}

namespace {

int64_t bit_of(int64_t row, int64_t column) {
  const int64_t tile = row / kSquare * 2 + column / kSquare;
  return tile * kSquare * kSquare + row % kSquare * kSquare + column % kSquare;
}

template <typename Visit>
void visit_bits(int64_t rows, int64_t columns, Visit visit) {
  const int64_t squares = columns / kThread;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t square = row / kThread * squares + column / kThread;
      const int64_t bit = bit_of(row % kThread, column % kThread);
      visit(row * columns + column, square * kThread + bit / 8, static_cast<int>(bit % 8));
    }
  }
}

}  // namespace

std::array<int64_t, 3> mask_sizes(const Tensor& matrix) {
  return {round_up(matrix.size(0), kWarpRows) / kThread, round_up(matrix.size(1), kWarp) / kThread, kThread};
}

Tensor packed_masks(const Tensor& pattern, const Tensor& matrix) {
  const auto sizes = mask_sizes(matrix);
  const Tensor own = pattern.narrow(0, 0, sizes[0] * kThread).contiguous();
  Tensor masks = at::zeros(sizes, pattern.options().dtype(at::kByte));
  const auto* from = own.const_data_ptr<bool>();
  auto* to = masks.mutable_data_ptr<uint8_t>();
  visit_bits(own.size(0), own.size(1), [&](int64_t element, int64_t byte, int bit) {
    if (from[element]) to[byte] = static_cast<uint8_t>(to[byte] | (1u << bit));
  });
  return masks;
}

Tensor unpacked_masks(const Tensor& given, const Tensor& matrix) {
  const Tensor masks = given.contiguous();
  const int64_t rows = masks.size(0) * kThread, columns = masks.size(1) * kThread;
  Tensor pattern = at::zeros({round_up(matrix.size(0), kWarp), columns}, masks.options().dtype(at::kBool));
  const auto* from = masks.const_data_ptr<uint8_t>();
  auto* to = pattern.mutable_data_ptr<bool>();
  visit_bits(rows, columns,
             [&](int64_t element, int64_t byte, int bit) { to[element] = ((from[byte] >> bit) & 1) != 0; });
  return pattern;
}

}  // namespace loom::glue::semi_structured
