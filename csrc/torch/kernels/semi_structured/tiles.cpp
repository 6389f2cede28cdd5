// Matrices made sparse both by row and by column, packed as either library has them.
#include <ATen/ops/empty.h>

#include <array>
#include <optional>
#include <tuple>

#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"
#include "torch/kernels/semi_structured/tile_patterns.h"

namespace loom::glue {

namespace semi_structured {

namespace {

// The part of a pattern and of its matrix that one of the kernels packs.
Kept pack(const Tensor& matrix, const Tensor& pattern, int64_t rows, int64_t columns) {
  const auto part = [&](const Tensor& whole) {
    return whole.narrow(0, 0, rows).narrow(1, 0, columns).contiguous();
  };
  const Tensor mask = part(pattern);
  return keep(part(matrix).masked_fill(mask.logical_not(), 0), mask, Format(matrix.scalar_type()));
}

// (rows, 2, pairs of columns)
Tensor tiled_numbers(const Kept& kept) {
  const Tensor numbers = ordered(kept.codes, Format(kept.values.scalar_type()));
  return numbers.view({numbers.size(1) / 2, numbers.size(0), 2}).permute({1, 2, 0});
}

using Tiled = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

struct PackedTiles {
  Tensor values, numbers;
};

// A matrix of so many rows and columns, without contents if there is no pattern.
PackedTiles pack_tiles(const Tensor& matrix, const std::optional<Tensor>& pattern, int64_t rows,
                       int64_t columns, bool is_cutlass) {
  const at::TensorOptions options = matrix.options(), of_numbers = options.dtype(at::kShort);
  if (is_cutlass) {
    const int64_t all_rows = round_up(rows, kWarpRows), all_columns = round_up(columns, kWarp);
    if (!pattern.has_value()) {
      return {at::empty({all_rows, all_columns / 2}, options),
              at::empty({all_columns / kWarpRows, all_rows, 2}, of_numbers).permute({1, 2, 0})};
    }
    const Kept kept = pack(matrix, *pattern, all_rows, all_columns);
    return {kept.values, tiled_numbers(kept)};
  }
  const int64_t num_values = rows * columns / 2, num_codes = rows * columns / 16;
  const std::array<int64_t, 3> sizes = {rows / 128, columns / 32, 256};
  if (!pattern.has_value()) return {at::empty({num_values + num_codes}, options), at::empty(sizes, options)};
  const Tensor whole =
      in_one(pack(matrix, *pattern, rows, columns), compressed_columns(columns, matrix.scalar_type()))
          .view(-1);
  return {whole, whole.narrow(0, num_values, num_codes).clone().view(sizes)};
}

Tiled tile_parts(const Tensor& matrix, c10::string_view name, bool is_cutlass) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const Tensor transposed = matrix.t();
  if (matrix.is_meta()) {
    const PackedTiles by_row = pack_tiles(matrix, {}, rows, columns, is_cutlass);
    const PackedTiles by_column = pack_tiles(transposed, {}, columns, rows, is_cutlass);
    return {by_row.values, by_row.numbers, by_column.values, by_column.numbers,
            at::empty(mask_sizes(matrix), matrix.options().dtype(at::kByte))};
  }
  const Tensor pattern = pattern_of(matrix, *Algorithm::named(name)), whole = padded(matrix, 0);
  const PackedTiles by_row = pack_tiles(whole, pattern, rows, columns, is_cutlass);
  const PackedTiles by_column = pack_tiles(whole.t(), pattern.t(), columns, rows, is_cutlass);
  return {by_row.values, by_row.numbers, by_column.values, by_column.numbers, packed_masks(pattern, matrix)};
}

void check_tiled_type(Type type) {
  TORCH_CHECK(type == at::kHalf || type == at::kBFloat16,
              "Unsupported dtype - only `float16` and `bfloat16` are supported currently, got ", type);
}

Tiled tile(const Tensor& matrix, c10::string_view name, bool is_cutlass) {
  check_tiled_type(matrix.scalar_type());
  TORCH_CHECK(matrix.dim() == 2, "Can only sparsify 2d tensors");
  TORCH_CHECK(matrix.stride(1) == 1,
              "Can only sparsify contiguous tensors. Sparsify the transpose otherwise.");
  TORCH_CHECK(is_cutlass || (matrix.size(0) % 128 == 0 && matrix.size(1) % 128 == 0),
              "Only supports rows/cols multiples of 128");
  TORCH_CHECK(matrix.size(1) % 32 == 0, "Number of cols should be multiple of 32");
  TORCH_CHECK(Algorithm::named(name).has_value(), "Unknown algorithm \"", name, "\"");
  return Fused<&tile_parts>::call(matrix, name, is_cutlass);
}

std::tuple<Tensor, Tensor> apply_parts(const Tensor& matrix, const Tensor& masks) {
  const int64_t rows = round_up(matrix.size(0), kWarpRows), columns = round_up(matrix.size(1), kWarp);
  if (matrix.is_meta()) {
    return {at::empty({rows, columns / 2}, matrix.options()),
            at::empty({columns, rows / 2}, matrix.options())};
  }
  const Tensor whole = padded(matrix, 0), pattern = unpacked_masks(masks, matrix);
  return {pack(whole, pattern, rows, columns).values, pack(whole.t(), pattern.t(), columns, rows).values};
}

void check_masks(const Tensor& matrix, const Tensor& masks) {
  check_tiled_type(matrix.scalar_type());
  TORCH_CHECK(matrix.dim() == 2, "Can only sparsify 2d tensors");
  TORCH_CHECK(matrix.size(1) % 32 == 0, "Wrong alignment shape[1]");
  const auto sizes = mask_sizes(matrix);
  TORCH_CHECK(masks.scalar_type() == at::kByte && masks.sizes() == at::IntArrayRef(sizes),
              "thread_masks must be what _sparse_semi_structured_tile returned for a matrix of these sizes: "
              "uint8 of ",
              at::IntArrayRef(sizes), ", got ", masks.scalar_type(), " of ", masks.sizes());
}

std::tuple<Tensor, Tensor> apply(const Tensor& matrix, const Tensor& masks) {
  check_masks(matrix, masks);
  return Fused<&apply_parts>::call(matrix, masks);
}

Tensor apply_dense_parts(const Tensor& matrix, const Tensor& masks) {
  if (matrix.is_meta()) return at::empty(matrix.sizes(), matrix.options());
  const Tensor pattern =
      unpacked_masks(masks, matrix).narrow(0, 0, matrix.size(0)).narrow(1, 0, matrix.size(1));
  return matrix.contiguous().masked_fill(pattern.logical_not(), 0);
}

Tensor apply_dense(const Tensor& matrix, const Tensor& masks) {
  check_masks(matrix, masks);
  return Fused<&apply_dense_parts>::call(matrix, masks);
}

}  // namespace

}  // namespace semi_structured

void register_sparse_tiles() {
  using namespace semi_structured;
  implement_fused<&tile_parts>(
      "_sparse_semi_structured_tile",
      "(Tensor input, str algorithm=\"\", bool use_cutlass=True) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
      &tile);
  implement_fused<&apply_parts>("_sparse_semi_structured_apply",
                                "(Tensor input, Tensor thread_masks) -> (Tensor, Tensor)", &apply);
  implement_fused<&apply_dense_parts>("_sparse_semi_structured_apply_dense",
                                      "(Tensor input, Tensor thread_masks) -> Tensor", &apply_dense);
}

}  // namespace loom::glue
