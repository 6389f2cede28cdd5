// Attention of nested tensors of the strided layout, [batch, heads, {time}, width], by CUDA's fused kernels:
// their sequences are packed, and one command computes all of them.
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "torch/core/registration.h"
#include "torch/kernels/attention/attention_checks.h"
#include "torch/kernels/attention/attention_choice.h"
#include "torch/kernels/attention/attention_dropout.h"
#include "torch/kernels/attention/fused_attention.h"
#include "torch/kernels/attention/packed_attention.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using at::native::get_nested_tensor_impl;

int64_t heads_of(const Tensor& tensor) { return tensor.size(1); }

// Rows of all sequences: (rows, heads, width). A batch of one and a single head stand for all.
struct Packed {
  Tensor rows, starts;
  std::vector<int64_t> lengths;
  int64_t longest = 0;

  Packed(const Tensor& tensor, int64_t batch, int64_t heads) {
    std::vector<Tensor> sequences = tensor.unbind(0);
    TORCH_CHECK(!sequences.empty(), "attention of a nested tensor without sequences");
    const int64_t own_batch = tensor.size(0), own_heads = heads_of(tensor);
    TORCH_CHECK((own_batch == batch || own_batch == 1) && (own_heads == heads || own_heads == 1),
                "attention of nested tensors: ", own_batch, " sequences of ", own_heads, " heads do not fit ",
                batch, " of ", heads);
    sequences.resize(batch, sequences.front());
    std::vector<int32_t> firsts{0};
    for (Tensor& sequence : sequences) {
      sequence = sequence.expand({heads, -1, -1}).transpose(0, 1);
      lengths.push_back(sequence.size(0));
      longest = std::max(longest, lengths.back());
      firsts.push_back(static_cast<int32_t>(firsts.back() + lengths.back()));
    }
    starts = at::tensor(firsts).to(tensor.device());
    const bool is_expanded = batch != own_batch || heads != own_heads;
    const std::optional<Tensor> memory = is_expanded ? std::nullopt : memory_of(tensor);
    // The memory may go on behind the sequences, as where the tensor is a part of another.
    const int64_t width = sequences.front().size(2), num_rows = firsts.back();
    rows = memory.has_value() ? memory->narrow(0, 0, num_rows * heads * width).view({num_rows, heads, width})
                              : at::cat(sequences);
  }

  // The nested tensor over rows of results, one sequence of queries after another.
  Tensor nested_over(const Tensor& results) const {
    std::vector<Tensor> sizes;
    sizes.reserve(lengths.size());
    for (const int64_t length : lengths) {
      sizes.push_back(at::tensor({length, results.size(-2), results.size(-1)}, at::kLong));
    }
    return at::native::wrap_buffer(results.reshape({-1}), at::stack(sizes)).transpose(1, 2);
  }

 private:
  // Where sequences lie one behind another already, by time, that memory: they need no copy.
  static std::optional<Tensor> memory_of(const Tensor& tensor) {
    if (!tensor.is_nested()) return std::nullopt;
    const Tensor by_time = tensor.transpose(1, 2);
    const auto* impl = get_nested_tensor_impl(by_time);
    if (!at::native::nested_tensor_impl_is_contiguous(impl)) return std::nullopt;
    return impl->get_buffer();
  }
};

struct PackedOperands {
  Packed query, key, value;

  PackedOperands(const Tensor& query, const Tensor& key, const Tensor& value)
      : PackedOperands(query, key, value, std::max({query.size(0), key.size(0), value.size(0)}),
                       std::max({heads_of(query), heads_of(key), heads_of(value)})) {}

  PackedCall call(double dropout, bool is_causal, std::optional<double> scale) const {
    PackedCall call;
    call.query = query.rows;
    call.key = key.rows;
    call.value = value.rows;
    call.starts_q = query.starts;
    call.starts_k = key.starts;
    call.max_q = query.longest;
    call.max_k = key.longest;
    call.dropout = dropout;
    call.is_causal = is_causal;
    call.scale = scale;
    return call;
  }

 private:
  PackedOperands(const Tensor& query, const Tensor& key, const Tensor& value, int64_t batch, int64_t heads)
      : query(query, batch, heads), key(key, batch, heads), value(value, batch, heads) {
    TORCH_CHECK(this->key.lengths == this->value.lengths,
                "attention of nested tensors: sequences of keys have the lengths ",
                at::IntArrayRef(this->key.lengths), ", of values ", at::IntArrayRef(this->value.lengths));
  }
};

// As of dense tensors: [batch, heads, longest query, longest key], in tiles.
Tensor signed_weights_of(const PackedOperands& packed, double dropout, bool is_causal,
                         std::optional<double> scale, const Tensor& state) {
  const auto by_head = [](const Tensor& rows) { return rows.transpose(0, 1).unsqueeze(0); };
  const std::vector<Tensor> queries = packed.query.rows.split_with_sizes(packed.query.lengths),
                            keys = packed.key.rows.split_with_sizes(packed.key.lengths);
  std::vector<Tensor> weights;
  for (size_t i = 0; i < queries.size(); ++i) {
    const Tensor own = signed_weights(by_head(queries[i]), by_head(keys[i]), dropout, is_causal, scale, state,
                                      static_cast<int64_t>(i));
    weights.push_back(in_mask_tiles(own, packed.query.longest, packed.key.longest));
  }
  return at::cat(weights);
}

FlashResult nested_flash(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                         bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  const PackedOperands packed(query, key, value);
  check_flash(packed.query.rows, packed.key.rows, packed.value.rows);
  auto [output, sums, state, offset] = packed_attention(packed.call(dropout_p, is_causal, scale));
  return {packed.query.nested_over(output),
          sums,
          packed.query.starts,
          packed.key.starts,
          packed.query.longest,
          packed.key.longest,
          state.view(at::kUInt64),
          offset.view(at::kUInt64),
          return_debug_mask && dropout_p > 0 ? signed_weights_of(packed, dropout_p, is_causal, scale, state)
                                             : at::empty({0}, output.options())};
}

std::tuple<Tensor, Tensor, Tensor> nested_flash_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& sums, const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout_p,
    bool is_causal, const Tensor& rng_state, const Tensor& unused, std::optional<double> scale) {
  if (!gradient.defined()) return {};
  const PackedOperands packed(query, key, value);
  const int64_t batch = query.size(0), heads = heads_of(query);
  for (const Tensor* tensor : {&key, &value}) {
    TORCH_CHECK(
        tensor->size(0) == batch && heads_of(*tensor) == heads,
        "gradients of attention of nested tensors need as many sequences and heads of keys and values ",
        "as of queries, ", batch, " of ", heads, ", got ", tensor->size(0), " of ", heads_of(*tensor));
  }
  const auto [dq, dk, dv] = packed_attention_backward(
      packed.call(dropout_p, is_causal, scale), Packed(gradient, batch, heads).rows,
      Packed(output, batch, heads).rows, sums, saved_state(rng_state, unused, dropout_p));
  return {packed.query.nested_over(dq), packed.key.nested_over(dk), packed.value.nested_over(dv)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> nested_efficient(const Tensor& query, const Tensor& key,
                                                            const Tensor& value, OptionalTensor bias, bool,
                                                            double dropout_p, bool is_causal,
                                                            std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!is_given(bias),
                              "_scaled_dot_product_efficient_attention of nested tensors takes no bias");
  const PackedOperands packed(query, key, value);
  PackedCall call = packed.call(dropout_p, is_causal, scale);
  call.is_from_top = true;
  auto [output, sums, state, offset] = packed_attention(call, /*sum_rows=*/0);
  return {packed.query.nested_over(output), sums, state.select(0, 0), offset};
}

}  // namespace

void register_nested_attention() {
  torch::Library& m = library(nested_key());
  m.impl("_fused_sdp_choice", choose_attention);
  m.impl("_scaled_dot_product_flash_attention", nested_flash);
  m.impl("_scaled_dot_product_flash_attention_backward", nested_flash_backward);
  m.impl("_scaled_dot_product_efficient_attention", nested_efficient);
}

}  // namespace loom::glue
