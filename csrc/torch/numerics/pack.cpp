// pack and unpack: tensors to and from the bytes of tiles.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <atomic>

#include "numerics/tiles.h"
#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

// A tensor as matrices of its last two dimensions.
struct Matrices {
  int64_t count, rows, columns;

  explicit Matrices(at::IntArrayRef shape)
      : count(1),
        rows(shape.size() < 2 ? 1 : shape[shape.size() - 2]),
        columns(shape.empty() ? 1 : shape.back()) {
    for (size_t i = 0; i + 2 < shape.size(); ++i) count *= shape[i];
  }

  int64_t tiles_down() const { return tiles_across(rows); }
  int64_t tiles_wide() const { return tiles_across(columns); }
  int64_t num_tiles() const { return count * tiles_down() * tiles_wide(); }

  // Calls visit(tile, matrix, row of tiles, column of tiles), on several threads.
  template <typename Visit>
  void each_tile(const Visit& visit) const {
    at::parallel_for(0, num_tiles(), 8, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t place = tile % (tiles_down() * tiles_wide());
        visit(tile, tile / (tiles_down() * tiles_wide()), place / tiles_wide(), place % tiles_wide());
      }
    });
  }
};

at::Tensor pack_cpu(const at::Tensor& self, int64_t format_value) {
  const Format format = checked_format(format_value, "pack");
  TORCH_CHECK_VALUE(rule_of(format_value) == Rule::kPyBuda, "pack: takes formats without a converter's rule");
  const Matrices matrices(self.sizes());
  at::Tensor tiles = at::empty({matrices.num_tiles(), tile_bytes(format)}, self.options().dtype(at::kByte));
  uint8_t* bytes = tiles.mutable_data_ptr<uint8_t>();
  const int64_t elements = matrices.rows * matrices.columns;
  if (is_integer(format) && at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    const at::Tensor values = self.to(at::kLong).contiguous();
    const int64_t* data = values.const_data_ptr<int64_t>();
    matrices.each_tile([&](int64_t tile, int64_t matrix, int64_t row, int64_t column) {
      pack_integer_tile(format, data + matrix * elements, matrices.rows, matrices.columns, row, column,
                        bytes + tile * tile_bytes(format));
    });
    return tiles;
  }
  check_floating(self, "pack");
  const at::Tensor values = as_floats(self);
  const float* data = values.const_data_ptr<float>();
  std::atomic<int64_t> num_lost{0};
  matrices.each_tile([&](int64_t tile, int64_t matrix, int64_t row, int64_t column) {
    Counts counts;
    num_lost += pack_tile(format, {data + matrix * elements, matrices.rows, matrices.columns}, row, column,
                          bytes + tile * tile_bytes(format), counts);
  });
  TORCH_CHECK_VALUE(num_lost == 0, "pack: ", num_lost.load(),
                    " values are NaN, for which Lf8 has no code; Float16_b and the block formats have");
  return tiles;
}

at::Tensor unpack_cpu(const at::Tensor& tiles, int64_t format_value, at::IntArrayRef shape) {
  const Format format = checked_format(format_value, "unpack");
  const Matrices matrices(shape);
  TORCH_CHECK_TYPE(tiles.scalar_type() == at::kByte, "unpack: tiles are bytes (uint8), not ",
                   tiles.scalar_type());
  TORCH_CHECK_VALUE(tiles.numel() == matrices.num_tiles() * tile_bytes(format), "unpack: ", tiles.numel(),
                    " bytes where a tensor of shape ", shape, " has ", matrices.num_tiles(), " tiles of ",
                    tile_bytes(format), " bytes");
  const at::Tensor whole = tiles.contiguous();
  at::Tensor out = at::empty(shape, tiles.options().dtype(at::kFloat));
  const uint8_t* bytes = whole.const_data_ptr<uint8_t>();
  float* data = out.mutable_data_ptr<float>();
  const int64_t elements = matrices.rows * matrices.columns;
  std::atomic<bool> is_valid{true};
  matrices.each_tile([&](int64_t tile, int64_t matrix, int64_t row, int64_t column) {
    if (!unpack_tile(format, bytes + tile * tile_bytes(format), data + matrix * elements, matrices.rows,
                     matrices.columns, row, column)) {
      is_valid = false;
    }
  });
  TORCH_CHECK_VALUE(is_valid,
                    "unpack: a shared exponent above 31, which a format of 5-bit exponents lacks: "
                    "these are tiles of another format");
  return out;
}

}  // namespace

void register_packing() {
  torch::Library& engine = loom::glue::library(loom::glue::kEngineOps, kLibrary);
  engine.impl("pack", &pack_cpu);
  engine.impl("unpack", &unpack_cpu);
}

}  // namespace loom::numerics::glue
