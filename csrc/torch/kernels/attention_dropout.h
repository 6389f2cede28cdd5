// What dropout dropped within attention, as CUDA's kernels tell it to tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::glue {

// The weights that a query's keys have, [batch, heads, rows, columns], negative where dropout dropped them.
// The keys may have fewer heads. Packed sequences are dropped each by numbers of its own.
at::Tensor signed_weights(const at::Tensor& query, const at::Tensor& key, double dropout_p, bool is_causal,
                          std::optional<double> scale, const at::Tensor& state, int64_t sequence = 0);

// Padded to tiles that cover so many rows and columns.
at::Tensor in_mask_tiles(const at::Tensor& weights, int64_t rows, int64_t columns);

}  // namespace loom::glue
