// Products with matrices of which each group of four elements has two zeros (of float32: each pair one), as
// CUTLASS and cuSPARSELt compute them: half of the elements are kept, with a code of four bits for each group
// that says which. An op is one command. The checks and their words are CUDA's.
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "torch/core/device.h"
#include "torch/core/optional_tensor.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Type = c10::ScalarType;

// How matrices of a dtype are stored.
struct Format {
  int64_t group;       // so many elements have a code
  Type meta;           // CUTLASS's numbers of several codes
  int64_t per_number;  // the elements that such a number is for

  explicit Format(Type type)
      : group(type == at::kFloat ? 2 : 4),
        meta(c10::elementSize(type) == 1 ? at::kInt : at::kShort),
        per_number((meta == at::kInt ? 8 : 4) * group) {}

  bool is_wide() const { return meta == at::kInt; }
  int64_t codes() const { return per_number / group; }
  int64_t row_step() const { return is_wide() ? 16 : 32; }
};

constexpr int64_t kCodeBits = 4, kCodeMask = 15, kPlaceMask = 3;
constexpr int64_t kSquare = 4, kThread = 8, kWarp = 64, kWarpRows = 32;

// By which elements of a group are not zero, the first in the lowest bit: the places of the two that are
// kept, the first in the lower two bits. Of more than two, the last ones are dropped; of fewer, zeros are
// kept.
constexpr std::array<uint8_t, 16> kCodeOf = {14, 8, 9, 4, 14, 8, 9, 4, 14, 12, 13, 4, 14, 12, 13, 4};

int64_t round_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

// What is kept of a matrix, and a byte for each code.
struct Kept {
  Tensor values, codes;
};

uint8_t bits_of(const bool* group, int64_t size) {
  if (size == 2) return static_cast<uint8_t>((group[0] ? 3 : 0) | (group[1] ? 12 : 0));
  return static_cast<uint8_t>(group[0] | (group[1] << 1) | (group[2] << 2) | (group[3] << 3));
}

// Of contiguous matrices of the engine.
Kept keep(const Tensor& dense, const Tensor& mask, const Format& format) {
  const int64_t rows = dense.size(0), columns = dense.size(1), groups = rows * columns / format.group;
  const auto item = static_cast<size_t>(dense.element_size());
  Kept kept{at::empty({rows, columns / 2}, dense.options()),
            at::empty({rows, columns / format.group}, dense.options().dtype(at::kByte))};
  const char* from = static_cast<const char*>(dense.const_data_ptr());
  char* to = static_cast<char*>(kept.values.mutable_data_ptr());
  const bool* is_kept = mask.const_data_ptr<bool>();
  auto* codes = kept.codes.mutable_data_ptr<uint8_t>();
  const auto copy = [&](int64_t place) {
    std::memcpy(to, from + static_cast<size_t>(place) * item, item);
    to += item;
  };
  for (int64_t group = 0; group < groups; ++group, is_kept += format.group) {
    const uint8_t code = kCodeOf[bits_of(is_kept, format.group)];
    codes[group] = code;
    if (format.group == 2) {
      copy((code & kPlaceMask) / 2);
    } else {
      copy(code & kPlaceMask);
      copy(code >> 2);
    }
    from += static_cast<size_t>(format.group) * item;
  }
  return kept;
}

Tensor dense_of(const Kept& kept, const Format& format) {
  const int64_t groups = kept.codes.numel();
  const auto item = static_cast<size_t>(kept.values.element_size());
  Tensor dense = at::zeros({kept.values.size(0), kept.values.size(1) * 2}, kept.values.options());
  const char* from = static_cast<const char*>(kept.values.const_data_ptr());
  char* to = static_cast<char*>(dense.mutable_data_ptr());
  const auto* codes = kept.codes.const_data_ptr<uint8_t>();
  const auto copy = [&](int64_t place) {
    std::memcpy(to + static_cast<size_t>(place) * item, from, item);
    from += item;
  };
  for (int64_t group = 0; group < groups; ++group) {
    if (format.group == 2) {
      copy((codes[group] & kPlaceMask) / 2);
    } else {
      copy(codes[group] & kPlaceMask);
      copy((codes[group] >> 2) & kPlaceMask);
    }
    to += static_cast<size_t>(format.group) * item;
  }
  return dense;
}

Tensor nonzero_mask(const Tensor& dense) { return dense.to(at::kFloat).ne(0).contiguous(); }

// Where CUTLASS's kernels read the number of a row and a column: rows are reordered, squares of two by two
// transposed, and pairs of columns stand one behind another.
int64_t place_of(int64_t row, int64_t column, int64_t rows, const Format& format) {
  const int64_t step = format.row_step(), interweave = step / 8;
  row = row / step * step + row % 8 * interweave + row % step / 8;
  if (row % 2 == 0 && column % 2 == 1) {
    ++row, --column;
  } else if (row % 2 == 1 && column % 2 == 0) {
    --row, ++column;
  }
  return (column / 2 * rows + row) * 2 + column % 2;
}

template <typename Number>
void order(const uint8_t* codes, Number* numbers, int64_t rows, int64_t columns, const Format& format) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      uint32_t number = 0;
      for (int64_t i = 0; i < format.codes(); ++i) number |= uint32_t{*codes++} << (kCodeBits * i);
      numbers[place_of(row, column, rows, format)] = static_cast<Number>(number);
    }
  }
}

template <typename Number>
void restore(const Number* numbers, uint8_t* codes, int64_t rows, int64_t columns, const Format& format) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const auto number = static_cast<uint32_t>(numbers[place_of(row, column, rows, format)]);
      for (int64_t i = 0; i < format.codes(); ++i) {
        *codes++ = static_cast<uint8_t>((number >> (kCodeBits * i)) & kCodeMask);
      }
    }
  }
}

Tensor ordered(const Tensor& codes, const Format& format) {
  const int64_t rows = codes.size(0), columns = codes.size(1) / format.codes();
  Tensor numbers = at::empty({rows, columns}, codes.options().dtype(format.meta));
  const auto* from = codes.const_data_ptr<uint8_t>();
  if (format.is_wide()) {
    order(from, numbers.mutable_data_ptr<int32_t>(), rows, columns, format);
  } else {
    order(from, numbers.mutable_data_ptr<int16_t>(), rows, columns, format);
  }
  return numbers;
}

// `meta`: (rows, columns), or as `_sparse_semi_structured_tile` returns it: (rows, 2, pairs of columns), over
// the same memory.
Tensor restored(const Tensor& meta, int64_t rows, const Format& format) {
  const Tensor numbers = (meta.dim() == 3 ? meta.permute({2, 0, 1}) : meta).contiguous();
  const int64_t columns = numbers.numel() / std::max<int64_t>(rows, 1);
  Tensor codes = at::empty({rows, columns * format.codes()}, meta.options().dtype(at::kByte));
  auto* to = codes.mutable_data_ptr<uint8_t>();
  if (format.is_wide()) {
    restore(numbers.const_data_ptr<int32_t>(), to, rows, columns, format);
  } else {
    restore(numbers.const_data_ptr<int16_t>(), to, rows, columns, format);
  }
  return codes;
}

// In float32, of integers exactly.
Tensor product_of(const Tensor& left, const Tensor& right) {
  const Type wide = c10::isIntegralType(left.scalar_type(), false) ? at::kDouble : at::kFloat;
  return at::mm(left.to(wide), right.to(wide));
}

// Rounded once; small formats saturate.
Tensor narrowed(const Tensor& product, Type type) {
  if (type == at::kChar) return product.round().clamp_(-128, 127).to(type);
  if (type == at::kInt) {
    return product.round()
        .clamp_(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())
        .to(type);
  }
  if (type == at::kFloat8_e4m3fn) return product.clamp(-448, 448).to(type);
  return product.to(type);
}

// --- CUTLASS

const runtime::Chip& chip_of(const Tensor& tensor) {
  return devices().device(tensor.device().index()).chip();
}

void check_ampere(const Tensor& tensor, const char* name) {
  const runtime::Chip& chip = chip_of(tensor);
  TORCH_CHECK(!chip.is_gpu || chip.capability_major == 8, name,
              " : Supported only on GPUs with compute capability 8.x");
}

void check_strides(const char* op, const char* name, const Tensor& matrix) {
  TORCH_CHECK(matrix.dim() == 2, op, " : Expected ", name, " argument to be 2D tensor, got ", matrix.dim(),
              " dims");
  TORCH_CHECK(matrix.stride(0) == 1 || matrix.stride(1) == 1, op, " : Invalid strides for ", name,
              " argument: row stride = ", matrix.stride(0), ", column stride = ", matrix.stride(1));
}

void check_codes(const char* op, const Tensor& kept, const Tensor& meta) {
  const Format format(kept.scalar_type());
  TORCH_CHECK(meta.scalar_type() == format.meta, op, " : Expected meta datatype ", format.meta, ", but got ",
              meta.scalar_type());
  TORCH_CHECK(kept.size(0) % format.row_step() == 0 && kept.size(1) % format.per_number == 0 &&
                  meta.numel() * format.per_number == kept.numel() * 2,
              op, " : the sparse matrix must have a multiple of ", format.row_step(), " rows and of ",
              format.per_number, " columns, and meta a number for ", format.per_number / 2,
              " of its elements, got ", kept.sizes(), " and ", meta.sizes());
}

void check_product(const Tensor& kept, const Tensor& meta, const Tensor& right, OptionalTensor bias,
                   std::optional<Type> wanted) {
  constexpr const char* kOp = "sparse_semi_structured_mad_op";
  check_ampere(right, kOp);
  const Type type = right.scalar_type(), result = wanted.value_or(type);
  TORCH_CHECK(type == at::kChar || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, kOp,
              " : The mat2 datatype ", type, " is not supported");
  TORCH_CHECK(kept.scalar_type() == type, kOp, " : Expected mat1 datatype ", type, ", but got ",
              kept.scalar_type());
  const bool has_bias = is_given(bias) && bias->numel() != 0;
  TORCH_CHECK(!has_bias || bias->scalar_type() == result, kOp, " : Expected input datatype ", result,
              ", but got ", bias->scalar_type());
  check_strides(kOp, "mat1", kept);
  check_strides(kOp, "mat2", right);
  TORCH_CHECK(!has_bias || bias->dim() == 1, kOp, " : Expected input argument to be 1D tensor, got ",
              bias->dim(), " dims");
  TORCH_CHECK(kept.size(1) == right.size(0) / 2, kOp, " : Expected mat1 argument to have ", right.size(0) / 2,
              " columns, but got ", kept.size(1));
  TORCH_CHECK(!has_bias || bias->size(0) == kept.size(0), kOp, " : Expected input argument to have ",
              kept.size(0), " elements, but got ", bias->size(0));
  TORCH_CHECK(result == type || (type == at::kChar && result == at::kInt), kOp, " : a product of ", type,
              " has no result of ", result);
  const bool is_by_row = kept.stride(1) == 1, is_right_by_row = right.stride(1) == 1;
  const auto layout = [](bool by_row) { return by_row ? "row-major" : "column_major"; };
  TORCH_CHECK(type != at::kChar || (is_by_row && !is_right_by_row),
              "spgemm_cutlass_dispatch_layouts_dispatch_layouts: Combination of ", layout(is_by_row), " and ",
              layout(is_right_by_row), " layouts for input tensors is not supported");
  check_codes(kOp, kept, meta);
  // Rows of the operands and of the result begin at multiples of 16 bytes.
  const auto is_aligned = [](int64_t size, Type of) {
    return size * static_cast<int64_t>(c10::elementSize(of)) % 16 == 0;
  };
  TORCH_CHECK(
      is_aligned(is_right_by_row ? right.size(1) : right.size(0), type) && is_aligned(right.size(1), result),
      "spgemm_cutlass : CUTLASS error: Error Misaligned Operand");
}

Tensor cutlass_parts(const Tensor& kept, const Tensor& meta, const Tensor& right, OptionalTensor bias,
                     double alpha, double beta, Type type) {
  if (right.is_meta()) return at::empty({kept.size(0), right.size(1)}, right.options().dtype(type));
  const Format format(kept.scalar_type());
  const Tensor left = dense_of({kept.contiguous(), restored(meta, kept.size(0), format)}, format);
  Tensor product = product_of(left, right).mul_(alpha);
  if (is_given(bias) && bias->numel() != 0) {
    product.add_(bias->to(product.scalar_type()).unsqueeze(1), beta);
  }
  return narrowed(product, type);
}

Tensor sparse_mm_parts(const Tensor& kept, const Tensor& meta, const Tensor& right,
                       std::optional<Type> type) {
  return cutlass_parts(kept, meta, right, {}, 1, 0, type.value_or(right.scalar_type()));
}

Tensor mm(const Tensor& kept, const Tensor& meta, const Tensor& right, std::optional<Type> type) {
  check_product(kept, meta, right, {}, type);
  return Fused<&sparse_mm_parts>::call(kept, meta, right, type);
}

Tensor sparse_addmm_parts(const Tensor& input, const Tensor& kept, const Tensor& meta, const Tensor& right,
                          const c10::Scalar& alpha, const c10::Scalar& beta, std::optional<Type> type) {
  return cutlass_parts(kept, meta, right, input, alpha.toDouble(), beta.toDouble(),
                       type.value_or(right.scalar_type()));
}

Tensor addmm(const Tensor& input, const Tensor& kept, const Tensor& meta, const Tensor& right,
             const c10::Scalar& alpha, const c10::Scalar& beta, std::optional<Type> type) {
  check_product(kept, meta, right, input, type);
  return Fused<&sparse_addmm_parts>::call(input, kept, meta, right, alpha, beta, type);
}

// All rows of the input, as columns.
Tensor columns_of(const Tensor& input) { return input.reshape({-1, input.size(-1)}).t(); }

Tensor linear_parts(const Tensor& input, const Tensor& weight, const Tensor& meta, OptionalTensor bias,
                    std::optional<c10::string_view> activation, std::optional<Type> type) {
  const Tensor product =
      cutlass_parts(weight, meta, columns_of(input), bias, 1, 1, type.value_or(input.scalar_type())).t();
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  const std::string_view kind = activation.value_or("none");
  return (kind == "relu" ? at::relu(product) : kind == "silu" ? at::silu(product) : product).reshape(sizes);
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& meta, OptionalTensor bias,
              std::optional<c10::string_view> activation, std::optional<Type> type) {
  constexpr const char* kOp = "_sparse_semi_structured_linear";
  TORCH_WARN_ONCE(
      "_sparse_semi_structured_linear is deprecated and will be removed in a future PyTorch release.  Please "
      "use _sparse_semi_structured_mm/_sparse_semi_structured_addmm instead.");
  check_ampere(input, kOp);
  const std::string_view kind = activation.value_or("none");
  TORCH_CHECK(kind == "none" || kind == "relu" || kind == "silu", kOp, " : The activation ", kind,
              " is not supported");
  TORCH_CHECK(kind != "silu" || !c10::isIntegralType(input.scalar_type(), false), kOp, " : The activation ",
              kind, " is not supported for given input tensors");
  TORCH_CHECK(input.dim() > 0, kOp, " : Expected input argument to have dimensions, got a number");
  check_product(weight, meta, columns_of(input), bias, type);
  return Fused<&linear_parts>::call(input, weight, meta, bias, activation, type);
}

std::tuple<Tensor, Tensor> compress_parts(const Tensor& dense) {
  const Format format(dense.scalar_type());
  const int64_t rows = dense.size(0), columns = dense.size(1);
  if (dense.is_meta()) {
    return {at::empty({rows, columns / 2}, dense.options()),
            at::empty({rows, columns / format.per_number}, dense.options().dtype(format.meta))};
  }
  const Tensor mask = nonzero_mask(dense);
  TORCH_CHECK(mask.view({-1, format.group}).sum(1).eq(format.group / 2).all().item<bool>(),
              "_to_sparse_semi_structured: dense argument does not match ", format.group == 4 ? "2:4" : "1:2",
              "sparsity pattern");
  const Kept kept = keep(dense.contiguous(), mask, format);
  return {kept.values, ordered(kept.codes, format)};
}

std::tuple<Tensor, Tensor> compress(const Tensor& dense) {
  constexpr const char* kOp = "_to_sparse_semi_structured";
  TORCH_CHECK(dense.dim() == 2, kOp, " : Expected dense argument to be 2D tensor, got ", dense.dim(),
              " dims");
  const Type type = dense.scalar_type();
  TORCH_CHECK(type == at::kChar || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat, kOp,
              ": Invalid dense argument datatype ", type, " encountered");
  const Format format(type);
  TORCH_CHECK(dense.size(0) % format.row_step() == 0, kOp,
              ": Number of rows of dense matrix must be divisible by ", format.row_step(), ", but it is ",
              dense.size(0));
  // Numbers are stored in pairs.
  const int64_t step = dense.size(1) % format.per_number == 0 ? 2 * format.per_number : format.per_number;
  TORCH_CHECK(dense.size(1) % step == 0, kOp, ": Number of columns of dense matrix must be divisible by ",
              step, ", but it is ", dense.size(1));
  return Fused<&compress_parts>::call(dense);
}

// --- Patterns of tiles of four by four, of which two elements of each row and column stay

using Tile = std::array<float, kSquare * kSquare>;

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

struct Algorithm {
  uint16_t (*pattern)(const Tile&);
  bool is_absolute;

  static std::optional<Algorithm> named(std::string_view name) {
    if (name.empty() || name == "largest_values_greedy") return Algorithm{greedy_pattern, false};
    if (name == "largest_abs_values_greedy") return Algorithm{greedy_pattern, true};
    if (name == "causal1122") return Algorithm{causal_pattern, false};
    return std::nullopt;
  }
};

// In multiples of what a warp computes.
Tensor padded(const Tensor& matrix, double with) {
  Tensor whole =
      at::full({round_up(matrix.size(0), kWarp), round_up(matrix.size(1), kWarp)}, with, matrix.options());
  whole.narrow(0, 0, matrix.size(0)).narrow(1, 0, matrix.size(1)).copy_(matrix);
  return whole;
}

// Which elements stay.
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

// Eight bytes for each square of eight by eight: a bit for each element, tile by tile.
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

// As large as `padded` makes the matrix.
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

// --- cuSPARSELt: codes stand behind what is kept, in numbers of the matrix's dtype. NVIDIA's order of them
// is not public; this one is by row.

int64_t compressed_columns(int64_t columns, Type type) {
  const int64_t bits = static_cast<int64_t>(c10::elementSize(type)) * 8;
  return columns / 2 + (columns / Format(type).group * kCodeBits + bits - 1) / bits;
}

Tensor in_one(const Kept& kept, int64_t columns) {
  Tensor whole = at::zeros({kept.values.size(0), columns}, kept.values.options());
  auto* to = static_cast<uint8_t*>(whole.mutable_data_ptr());
  const auto num_bytes = static_cast<size_t>(kept.values.nbytes());
  if (num_bytes == 0) return whole;
  std::memcpy(to, kept.values.const_data_ptr(), num_bytes);
  const auto* codes = kept.codes.const_data_ptr<uint8_t>();
  to += num_bytes;
  for (int64_t i = 0; i < kept.codes.numel(); ++i) {
    to[i / 2] = static_cast<uint8_t>(to[i / 2] | (codes[i] << (i % 2 * kCodeBits)));
  }
  return whole;
}

Kept of_one(const Tensor& given, int64_t columns, const Format& format) {
  const Tensor whole = given.contiguous();
  const int64_t rows = whole.size(0);
  Kept kept{whole.view(-1).narrow(0, 0, rows * columns / 2).view({rows, columns / 2}),
            at::empty({rows, columns / format.group}, whole.options().dtype(at::kByte))};
  const auto* from = static_cast<const uint8_t*>(whole.const_data_ptr()) + kept.values.nbytes();
  auto* codes = kept.codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < kept.codes.numel(); ++i) {
    codes[i] = static_cast<uint8_t>((from[i / 2] >> (i % 2 * kCodeBits)) & kCodeMask);
  }
  return kept;
}

void check_library(const Tensor& tensor) {
  const runtime::Chip& chip = chip_of(tensor);
  TORCH_CHECK(!chip.is_gpu || chip.capability_major >= 8,
              "CUDA error: architecture mismatch when calling `cusparseLtInit(&handle)`");
}

bool is_narrow(Type type) { return type == at::kChar || type == at::kFloat8_e4m3fn; }

void check_library_type(Type type, const char* what) {
  TORCH_CHECK(is_narrow(type) || type == at::kHalf || type == at::kBFloat16 || type == at::kFloat,
              "Unsupported dtype for cuSPARSELt compressed matrix", what);
}

Tensor library_compress_parts(const Tensor& dense) {
  const int64_t columns = compressed_columns(dense.size(1), dense.scalar_type());
  if (dense.is_meta()) return at::empty({dense.size(0), columns}, dense.options());
  const Tensor own = dense.contiguous();
  return in_one(keep(own, nonzero_mask(own), Format(dense.scalar_type())), columns);
}

Tensor library_compress(const Tensor& dense) {
  check_library(dense);
  check_library_type(dense.scalar_type(), "");
  TORCH_CHECK(dense.dim() == 2, "_cslt_compress: expected a matrix, got the sizes ", dense.sizes());
  // Rows that begin at multiples of 16 bytes, in groups.
  const int64_t step = is_narrow(dense.scalar_type()) ? 32 : dense.scalar_type() == at::kFloat ? 8 : 16;
  TORCH_CHECK(
      dense.size(0) % step == 0 && dense.size(1) % step == 0 && dense.numel() != 0,
      "CUDA error: invalid value when calling `cusparseLtStructuredDescriptorInit( &handle, "
      "&sparse_input_descriptor, sparse_input.size(0), sparse_input.size(1), sparse_input.size(1), 16, "
      "type, CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT)`: sizes must be multiples of ",
      step, ", got ", dense.sizes());
  return Fused<&library_compress_parts>::call(dense);
}

Tensor library_mm_parts(const Tensor& compressed, const Tensor& right, OptionalTensor bias,
                        OptionalTensor alpha, std::optional<Type> type, bool is_transposed, int64_t, int64_t,
                        int64_t) {
  const Type result = type.value_or(right.scalar_type());
  const int64_t rows = compressed.size(0), columns = right.size(1);
  if (right.is_meta()) {
    return is_transposed ? at::empty({columns, rows}, right.options().dtype(result))
                         : at::empty({rows, columns}, right.options().dtype(result));
  }
  const Format format(compressed.scalar_type());
  Tensor product = product_of(dense_of(of_one(compressed, right.size(0), format), format), right);
  const Type wide = product.scalar_type();
  if (is_given(alpha))
    product.mul_(alpha->numel() == 1 ? alpha->to(wide).view({1, 1}) : alpha->to(wide).view({-1, 1}));
  if (is_given(bias)) product.add_(bias->to(wide).unsqueeze(1));
  return narrowed(is_transposed ? product.t().contiguous() : product, result);
}

void check_library_result(Type type, std::optional<Type> wanted) {
  if (!wanted.has_value()) return;
  const Type result = *wanted;
  if (type == at::kChar) {
    TORCH_CHECK(result == at::kHalf || result == at::kBFloat16 || result == at::kInt,
                "Unsupported out_dtype passed, must be one of {fp16, bf16, int32} for int8 inputs");
    return;
  }
  TORCH_CHECK(type == at::kFloat8_e4m3fn, "out_dtype support only available for int8/fp8 inputs");
  TORCH_CHECK(result == type || result == at::kHalf || result == at::kBFloat16 || result == at::kFloat,
              "Unsupported out_dtype passed, must be one of {fp8, fp16, bf16, float32} for fp8 inputs");
}

Tensor library_mm(const Tensor& compressed, const Tensor& right, OptionalTensor bias, OptionalTensor alpha,
                  std::optional<Type> type, bool is_transposed, int64_t algorithm, int64_t split,
                  int64_t split_mode) {
  check_library(right);
  check_library_type(right.scalar_type(), " multiplication.");
  check_library_result(right.scalar_type(), type);
  TORCH_CHECK(compressed.dim() == 2 && right.dim() == 2, "_cslt_sparse_mm: expected matrices, got the sizes ",
              compressed.sizes(), " and ", right.sizes());
  TORCH_CHECK(compressed.scalar_type() == right.scalar_type(),
              "_cslt_sparse_mm: the matrices must have one dtype, got ", compressed.scalar_type(), " and ",
              right.scalar_type());
  TORCH_CHECK(compressed.size(1) == compressed_columns(right.size(0), right.scalar_type()),
              "_cslt_sparse_mm: the compressed matrix has ", compressed.size(1),
              " columns; one that is multiplied with ", right.size(0), " rows has ",
              compressed_columns(right.size(0), right.scalar_type()));
  TORCH_CHECK(!is_given(bias) || bias->sizes() == at::IntArrayRef({compressed.size(0)}),
              "_cslt_sparse_mm: the bias must have a number for each of the ", compressed.size(0),
              " rows, got the sizes ", bias->sizes());
  TORCH_CHECK(!is_given(alpha) || alpha->numel() == 1 || alpha->numel() == compressed.size(0),
              "_cslt_sparse_mm: alpha must be one number, or one for each of the ", compressed.size(0),
              " rows, got the sizes ", alpha->sizes());
  TORCH_CHECK(!is_narrow(right.scalar_type()) || !right.is_contiguous(),
              "CUDA error: operation not supported when calling `cusparseLtMatmulDescriptorInit( &handle, "
              "&matmul, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, "
              "&sparse_input_descriptor, &dense_input_descriptor, &C_descriptor, &res_descriptor, "
              "compute_type)`: the second matrix of 8 bits must be stored by column");
  return Fused<&library_mm_parts>::call(compressed, right, bias, alpha, type, is_transposed, algorithm, split,
                                        split_mode);
}

// There is one algorithm.
int64_t library_search(const Tensor& compressed, const Tensor& right, OptionalTensor bias,
                       OptionalTensor alpha, std::optional<Type> type, bool is_transposed) {
  library_mm(compressed, right, bias, alpha, type, is_transposed, 0, 1, -1);
  return 0;
}

// --- Both ways of packing

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

void register_semi_structured() {
  implement_fused<&sparse_mm_parts>(
      "_sparse_semi_structured_mm",
      "(Tensor mat1, Tensor mat1_meta, Tensor mat2, *, ScalarType? out_dtype=None) -> Tensor", &mm);
  implement_fused<&sparse_addmm_parts>(
      "_sparse_semi_structured_addmm",
      "(Tensor input, Tensor mat1, Tensor mat1_meta, Tensor mat2, *, Scalar alpha=1, "
      "Scalar beta=1, ScalarType? out_dtype=None) -> Tensor",
      &addmm);
  implement_fused<&linear_parts>("_sparse_semi_structured_linear",
                                 "(Tensor input, Tensor weight, Tensor meta, *, Tensor? bias=None, str? "
                                 "activation=None, ScalarType? out_dtype=None) -> Tensor",
                                 &linear);
  implement_fused<&compress_parts>("_to_sparse_semi_structured", "(Tensor dense) -> (Tensor, Tensor)",
                                   &compress);
  implement_fused<&tile_parts>(
      "_sparse_semi_structured_tile",
      "(Tensor input, str algorithm=\"\", bool use_cutlass=True) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
      &tile);
  implement_fused<&apply_parts>("_sparse_semi_structured_apply",
                                "(Tensor input, Tensor thread_masks) -> (Tensor, Tensor)", &apply);
  implement_fused<&apply_dense_parts>("_sparse_semi_structured_apply_dense",
                                      "(Tensor input, Tensor thread_masks) -> Tensor", &apply_dense);
  implement_fused<&library_compress_parts>("_cslt_compress", "(Tensor input) -> Tensor", &library_compress);
  implement_fused<&library_mm_parts>(
      "_cslt_sparse_mm",
      "(Tensor compressed_A, Tensor dense_B, Tensor? bias=None, Tensor? alpha=None, ScalarType? "
      "out_dtype=None, bool transpose_result=False, int alg_id=0, int split_k=1, int split_k_mode=-1) -> "
      "Tensor",
      &library_mm);
  library(own_key()).impl("_cslt_sparse_mm_search", &library_search);
}

}  // namespace loom::glue
