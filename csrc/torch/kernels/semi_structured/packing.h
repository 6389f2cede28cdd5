// Products with matrices of which each group of four elements has two zeros (of float32: each pair one), as
// CUTLASS and cuSPARSELt compute them: half of the elements are kept, with a code of four bits for each group
// that says which. An op is one command. The checks and their words are CUDA's.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "torch/core/device.h"

namespace loom::glue::semi_structured {

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

inline constexpr int64_t kCodeBits = 4, kCodeMask = 15, kPlaceMask = 3;
inline constexpr int64_t kSquare = 4, kThread = 8, kWarp = 64, kWarpRows = 32;

inline int64_t round_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

inline const runtime::Chip& chip_of(const Tensor& tensor) {
  return devices().device(tensor.device().index()).chip();
}

// What is kept of a matrix, and a byte for each code.
struct Kept {
  Tensor values, codes;
};

// Of contiguous matrices of the engine.
Kept keep(const Tensor& dense, const Tensor& mask, const Format& format);
Tensor dense_of(const Kept& kept, const Format& format);
Tensor nonzero_mask(const Tensor& dense);

// CUTLASS's numbers of codes, in the order of its kernels, and back. `meta`: (rows, columns), or as
// `_sparse_semi_structured_tile` returns it: (rows, 2, pairs of columns), over the same memory.
Tensor ordered(const Tensor& codes, const Format& format);
Tensor restored(const Tensor& meta, int64_t rows, const Format& format);

// cuSPARSELt: codes stand behind what is kept, in numbers of the matrix's dtype. NVIDIA's order of them is
// not public; this one is by row.
int64_t compressed_columns(int64_t columns, Type type);
Tensor in_one(const Kept& kept, int64_t columns);
Kept of_one(const Tensor& given, int64_t columns, const Format& format);

// In float32, of integers exactly.
Tensor product_of(const Tensor& left, const Tensor& right);
// Rounded once; small formats saturate.
Tensor narrowed(const Tensor& product, Type type);

}  // namespace loom::glue::semi_structured
