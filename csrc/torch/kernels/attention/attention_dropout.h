// Which weights of attention were dropped, for callers that ask (`return_debug_mask`, tests of PyTorch).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace loom::glue {

// Returns the weight of each key for each query, [batch, heads, rows, columns], negated where it was dropped.
// The keys may have fewer heads than the query. `sequence` is the place of a sequence in a packed batch: each
// draws from a range of its own.
at::Tensor signed_weights(const at::Tensor& query, const at::Tensor& key, double dropout_p, bool is_causal,
                          std::optional<double> scale, const at::Tensor& state, int64_t sequence = 0);

// Returns the weights padded to whole tiles of the mask, which hold at least `rows` and `columns`.
at::Tensor in_mask_tiles(const at::Tensor& weights, int64_t rows, int64_t columns);

}  // namespace loom::glue
