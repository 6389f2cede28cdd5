#include "torch/engine/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "random/philox.h"

namespace loom::glue {

namespace {

using at::Tensor;

constexpr int64_t kWords = 4;  // of a call of Philox

// Of 32 bits, as cuRAND: above 0 and up to 1.
float in_unit_interval(uint32_t word) { return static_cast<float>(word) * 0x1p-32F + 0x1p-33F; }

// Tiles of 16 rows and 32 columns share their calls of Philox: thread `lane` of a warp has the columns and
// rows of which matrix units give it products, and a byte for each.
void fill_as_flash(const DropoutNumbers& numbers, Tensor& self, double dropout) {
  constexpr int64_t kTileRows = 16, kTileColumns = 32, kLanes = 32, kColumnsOfPart = 8;
  constexpr int kPhiloxRounds = 7;
  const int64_t heads = self.size(-3), rows = self.size(-2), columns = self.size(-1);
  const int64_t matrices = self.numel() / std::max<int64_t>(rows * columns, 1);
  const auto limit = static_cast<uint8_t>(std::floor((1 - dropout) * 255.0));
  float* const values = self.mutable_data_ptr<float>();
  const int64_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  at::parallel_for(0, matrices * row_tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t matrix = task / row_tiles, row_tile = task % row_tiles;
      const uint64_t number = static_cast<uint64_t>(matrix) + numbers.sequence * static_cast<uint64_t>(heads);
      for (int64_t column_tile = 0; column_tile * kTileColumns < columns; ++column_tile) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const uint64_t tile = static_cast<uint64_t>(row_tile) | static_cast<uint64_t>(column_tile) << 32;
          const auto words =
              random::philox(numbers.seed, numbers.offset + number * kLanes + static_cast<uint64_t>(lane),
                             tile, kPhiloxRounds);
          for (int64_t i = 0; i < 16; ++i) {
            const int64_t part = i / 4;
            const int64_t row = row_tile * kTileRows + lane / 4 + (i / 2 % 2) * 8;
            const int64_t column = column_tile * kTileColumns + part * kColumnsOfPart + lane % 4 * 2 + i % 2;
            if (row >= rows || column >= columns) continue;
            const auto byte = static_cast<uint8_t>(words[static_cast<size_t>(part)] >> (i % 4 * 8));
            values[(matrix * rows + row) * columns + column] = byte <= limit ? 2.0F : -1.0F;
          }
        }
      }
    }
  });
}

}  // namespace

DropoutNumbers::DropoutNumbers(const Tensor& seed, const Tensor& offset, int64_t sequence,
                               DropoutScheme scheme)
    : seed(static_cast<uint64_t>(*seed.const_data_ptr<int64_t>())),
      offset(static_cast<uint64_t>(*offset.const_data_ptr<int64_t>())),
      sequence(static_cast<uint64_t>(sequence)),
      scheme(scheme) {}

Tensor& DropoutNumbers::fill(Tensor& self, double dropout) const {
  // float32, whatever the weights are: the numbers do not depend on the dtype of the call.
  Tensor numbers = at::empty(self.sizes(), self.options().dtype(at::kFloat));
  if (scheme == DropoutScheme::kFlash) {
    fill_as_flash(*this, numbers, dropout);
    return self.copy_(numbers);
  }
  float* const values = numbers.mutable_data_ptr<float>();
  const int64_t count = numbers.numel();
  constexpr int64_t kGrain = 2048;
  constexpr uint64_t kFirstBit = 40;  // no sequence has as many weights
  at::parallel_for(0, (count + kWords - 1) / kWords, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto number = static_cast<uint64_t>(block);
      const auto words = scheme == DropoutScheme::kEfficient
                             ? random::philox(seed, offset / kWords + number, 0)
                             : random::philox(seed, (sequence << kFirstBit) + number, offset);
      const int64_t first = block * kWords;
      for (int64_t i = 0; i < std::min(kWords, count - first); ++i) {
        values[first + i] = in_unit_interval(words[static_cast<size_t>(i)]);
      }
    }
  });
  return self.copy_(numbers);
}

DropoutNumbers draw_numbers(const Tensor& state, const std::optional<at::Generator>& generator,
                            DropoutScheme scheme) {
  TORCH_INTERNAL_ASSERT(generator.has_value());
  const DropoutNumbers numbers(generator->current_seed(), generator->get_offset(), scheme);
  auto* const both = state.mutable_data_ptr<int64_t>();
  both[0] = static_cast<int64_t>(numbers.seed);
  both[1] = static_cast<int64_t>(numbers.offset);
  return numbers;
}

Tensor kept_weights(const Tensor& weights, double dropout, const DropoutNumbers& numbers) {
  if (dropout >= 1) return at::zeros_like(weights);
  Tensor drawn = at::empty(weights.sizes(), weights.options().dtype(at::kFloat));
  return numbers.fill(drawn, dropout).gt(dropout).to(weights.scalar_type()).div_(1 - dropout);
}

}  // namespace loom::glue
