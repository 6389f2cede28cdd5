// Weights of four bits, under the engine's names.
#pragma once

#include <ATen/ops/_convert_weight_to_int4pack_for_cpu.h>
#include <ATen/ops/_weight_int4pack_mm_for_cpu.h>

namespace loom::glue {

// numbers: int32 (n, k) below 16. Packed: uint8 (n, k / 2).
inline at::Tensor engine_pack_int4(const at::Tensor& numbers, int64_t inner_k_tiles) {
  return at::_convert_weight_to_int4pack_for_cpu(numbers, inner_k_tiles);
}

inline at::Tensor engine_int4_mm(const at::Tensor& input, const at::Tensor& packed, int64_t group_size,
                                 const at::Tensor& scales_and_zeros) {
  return at::_weight_int4pack_mm_for_cpu(input, packed, group_size, scales_and_zeros);
}

}  // namespace loom::glue
