// CUDA's memory-efficient kernel under its own name: tensors [batch, time, heads, width], packed sequences,
// windows, and triangles of either corner. torch.nn.attention.bias and jagged tensors call it.
#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <limits>

#include "torch/core/optional_tensor.h"
#include "torch/core/registration.h"
#include "torch/kernels/attention/attention_checks.h"
#include "torch/kernels/attention/attention_choice.h"
#include "torch/kernels/attention/fused_attention.h"
#include "torch/kernels/attention/packed_attention.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;

// What the number of a mask stands for: triangles of either corner.
struct Triangle {
  bool is_causal, is_from_top;
  int64_t diagonal;

  Triangle(const Tensor& query, const Tensor& key, int64_t custom_mask_type)
      : is_causal(custom_mask_type != 0),
        is_from_top(custom_mask_type == kFromTopLeft),
        diagonal(custom_mask_type == kFromBottomRight ? key.size(1) - query.size(1) : 0) {
    TORCH_CHECK(custom_mask_type >= 0 && custom_mask_type <= kFromBottomRight,
                "custom_mask_type must be 0 (none), 1 (from the top left) or 2 (from the bottom right), got ",
                custom_mask_type);
  }

 private:
  static constexpr int64_t kFromTopLeft = 1, kFromBottomRight = 2;
};

// The starts of sequences are int32.
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();

// Packed sequences are a batch of one.
Tensor without_batch(const Tensor& tensor, bool is_packed) { return is_packed ? tensor.squeeze(0) : tensor; }
Tensor with_batch(const Tensor& tensor, bool is_packed) { return is_packed ? tensor.unsqueeze(0) : tensor; }

// Of packed sequences, and of queries that see so many keys at most.
PackedCall packed_call(const Tensor& query, const Tensor& key, const Tensor& value,
                       const std::optional<Tensor>& starts_q, const std::optional<Tensor>& starts_k,
                       int64_t max_q, int64_t max_k, double dropout_p, const Triangle& triangle,
                       std::optional<double> scale, std::optional<int64_t> window) {
  const bool is_packed = is_given(starts_q);
  TORCH_CHECK(is_packed == is_given(starts_k),
              "_efficient_attention_forward: seqstart_q and seqstart_k must be given together");
  TORCH_CHECK(!is_packed || query.size(0) == 1,
              "_efficient_attention_forward: packed sequences are a batch of 1, got ", query.size(0));
  TORCH_CHECK(query.size(0) == key.size(0) && query.size(0) == value.size(0),
              "_efficient_attention_forward: batches of query, key and value differ: ", query.size(0), ", ",
              key.size(0), ", ", value.size(0));
  TORCH_CHECK(max_q >= 0 && max_q <= kMaxLength,
              "_efficient_attention_forward: max_seqlen_q must be from 0 to ", kMaxLength, ", got ", max_q);
  TORCH_CHECK(window.value_or(0) <= 0 || triangle.is_causal,
              "_efficient_attention_forward: a window_size needs a causal mask, got custom_mask_type 0");
  PackedCall call;
  call.query = without_batch(query, is_packed);
  call.key = without_batch(key, is_packed);
  call.value = without_batch(value, is_packed);
  call.starts_q = starts_q;
  call.starts_k = starts_k;
  call.max_q = max_q;
  call.max_k = max_k;
  call.dropout = dropout_p;
  call.is_causal = triangle.is_causal;
  call.is_from_top = triangle.is_from_top;
  call.scale = scale;
  if (window.value_or(0) > 0) call.left = *window - 1;
  return call;
}

void check_dims(const Tensor& query, const Tensor& key, const Tensor& value) {
  for (const Tensor* tensor : {&query, &key, &value}) {
    TORCH_CHECK(tensor->dim() == 4, "_efficient_attention: tensors must be [batch, time, heads, width], got ",
                tensor->sizes());
  }
}

bool is_dense(const std::optional<Tensor>& starts, std::optional<int64_t> window) {
  return !is_given(starts) && window.value_or(0) <= 0;
}

using EfficientByTime = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt>;

EfficientByTime efficient_by_time(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const std::optional<Tensor>& bias, const std::optional<Tensor>& starts_q,
                                  const std::optional<Tensor>& starts_k, std::optional<c10::SymInt> longest_q,
                                  std::optional<c10::SymInt> longest_k, double dropout_p,
                                  int64_t custom_mask_type, bool compute_logsumexp,
                                  std::optional<double> scale, const std::optional<Tensor>& used_k,
                                  std::optional<int64_t> window) {
  check_dims(query, key, value);
  const Triangle triangle(query, key, custom_mask_type);
  if (is_dense(starts_q, window) && !is_given(starts_k) && !is_given(used_k)) {
    const Tensor by_head[] = {query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)};
    auto [output, logsumexp, state, offset] =
        efficient_attention(by_head[0], by_head[1], by_head[2], bias, compute_logsumexp, dropout_p,
                            triangle.is_causal, scale, triangle.diagonal);
    return {output.transpose(1, 2), logsumexp,      state.select(0, 0), offset,
            query.sym_size(1),      key.sym_size(1)};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_given(bias), "_efficient_attention_forward of packed sequences or with a window takes no bias");
  TORCH_CHECK(!is_given(used_k) || is_given(starts_q),
              "_efficient_attention_forward: seqlen_k must be given with seqstart_q and seqstart_k");
  TORCH_CHECK(!is_given(starts_q) || longest_q.has_value(),
              "_efficient_attention_forward: max_seqlen_q must be given with seqstart_q");
  const int64_t max_q = is_given(starts_q) ? longest_q->expect_int() : query.size(1);
  const int64_t max_k = is_given(starts_k) && longest_k.has_value() ? longest_k->expect_int() : key.size(1);
  PackedCall call =
      packed_call(query, key, value, starts_q, starts_k, max_q, max_k, dropout_p, triangle, scale, window);
  call.used_k = used_k;
  auto [output, sums, state, offset] = packed_attention(call, compute_logsumexp ? in_tiles(max_q) : 0);
  return {with_batch(output, is_given(starts_q)), sums, state.select(0, 0), offset, max_q, max_k};
}

AttentionGradients efficient_by_time_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
    const std::optional<Tensor>& bias, const Tensor& output, const std::optional<Tensor>& starts_q,
    const std::optional<Tensor>& starts_k, c10::SymInt max_q, c10::SymInt max_k, const Tensor& logsumexp,
    double dropout_p, const Tensor& seed, const Tensor& offset, int64_t custom_mask_type, bool wants_bias,
    std::optional<double> scale, std::optional<int64_t>, std::optional<int64_t> window, bool) {
  check_dims(query, key, value);
  check_dims(gradient, output, query);
  const Triangle triangle(query, key, custom_mask_type);
  if (is_dense(starts_q, window)) {
    if (is_cuda(query)) check_efficient_sums(logsumexp);
    auto [dq, dk, dv, db] = fused_attention_backward(
        gradient.transpose(1, 2), query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
        bias.value_or(Tensor()), wants_bias, output.transpose(1, 2), logsumexp,
        saved_state(seed, offset, dropout_p), dropout_p, triangle.is_causal, scale, triangle.diagonal,
        /*is_by_time=*/true);
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), db};
  }
  const bool is_packed = is_given(starts_q);
  const auto [dq, dk, dv] =
      packed_attention_backward(packed_call(query, key, value, starts_q, starts_k, max_q.expect_int(),
                                            max_k.expect_int(), dropout_p, triangle, scale, window),
                                without_batch(gradient, is_packed), without_batch(output, is_packed),
                                logsumexp, saved_state(seed, offset, dropout_p));
  return {with_batch(dq, is_packed), with_batch(dk, is_packed), with_batch(dv, is_packed), Tensor()};
}

}  // namespace

void register_attention_by_time() {
  torch::Library& m = library(own_key());
  m.impl("_efficient_attention_forward", efficient_by_time);
  m.impl("_efficient_attention_backward", efficient_by_time_backward);
}

}  // namespace loom::glue
