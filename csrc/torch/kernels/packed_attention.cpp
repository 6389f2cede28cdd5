// Attention of sequences of different lengths, packed one behind another, under the names of CUDA's flash
// attention: what `torch.nn.attention.varlen` and nested tensors call.
#include "torch/kernels/packed_attention.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>

#include "torch/engine/dropout.h"
#include "torch/engine/fused.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;

PackedAttention checked(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor starts_q,
                        OptionalTensor starts_k, double dropout, bool is_causal, std::optional<double> scale,
                        OptionalInt left, OptionalInt right, OptionalTensor used_k, OptionalTensor slopes,
                        OptionalTensor pages, bool is_from_top) {
  TORCH_CHECK(key.scalar_type() == query.scalar_type() && value.scalar_type() == query.scalar_type(),
              "query, key and value must have the same dtype, got ", query.scalar_type(), ", ",
              key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "dropout must be a probability from 0 to 1, got ", dropout);
  PackedAttention call{query,
                       key,
                       value,
                       starts_q,
                       starts_k,
                       used_k,
                       slopes,
                       pages,
                       dropout,
                       scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))),
                       is_from_top,
                       left.value_or(-1),
                       is_causal ? 0 : right.value_or(-1)};
  const int64_t dims = call.is_packed() ? 3 : 4;
  TORCH_CHECK(query.dim() == dims, "_flash_attention_forward: a query of the shape ", query.sizes(),
              call.is_packed() ? " is not (rows, heads, width)" : " is not (batch, rows, heads, width)");
  TORCH_CHECK(call.heads() % std::max<int64_t>(key.size(-2), 1) == 0,
              "_flash_attention_forward: ", call.heads(), " heads of the query are no multiple of ",
              key.size(-2), " of the key");
  TORCH_CHECK(!is_given(pages) || is_given(used_k), "_flash_attention_forward: block_table needs seqused_k");
  return call;
}

std::tuple<Tensor, Tensor, Tensor> run(const Tensor& query, const Tensor& key, const Tensor& value,
                                       OptionalTensor starts_q, OptionalTensor starts_k, int64_t, int64_t,
                                       double dropout, bool is_causal, std::optional<double> scale,
                                       OptionalInt left, OptionalInt right, OptionalTensor used_k,
                                       OptionalTensor slopes, OptionalTensor pages, bool is_from_top,
                                       OptionalInt sum_rows, std::optional<at::Generator> generator) {
  return engine_packed_attention(checked(query, key, value, starts_q, starts_k, dropout, is_causal, scale,
                                         left, right, used_k, slopes, pages, is_from_top),
                                 sum_rows, std::move(generator));
}

std::tuple<Tensor, Tensor, Tensor> run_backward(const Tensor& gradient, const Tensor& query,
                                                const Tensor& key, const Tensor& value, const Tensor& output,
                                                const Tensor& sums, OptionalTensor starts_q,
                                                OptionalTensor starts_k, int64_t, int64_t, double dropout,
                                                bool is_causal, const Tensor& seed,
                                                std::optional<double> scale, OptionalInt left,
                                                OptionalInt right, bool is_from_top) {
  return engine_packed_attention_backward(checked(query, key, value, starts_q, starts_k, dropout, is_causal,
                                                  scale, left, right, {}, {}, {}, is_from_top),
                                          gradient, output, sums, seed);
}

void check_flash(const Tensor& query) {
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Forward flash_forward(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor cum_seq_q,
                      OptionalTensor cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p,
                      bool is_causal, bool, std::optional<double> scale, OptionalInt window_size_left,
                      OptionalInt window_size_right, OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                      OptionalTensor block_table, OptionalInt) {
  check_flash(query);
  auto [output, sums, state] =
      packed_attention({query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, scale,
                        window_size_left, window_size_right, seqused_k, alibi_slopes, block_table});
  return {output, sums, state.view(at::kUInt64), at::empty({}, state.options().dtype(at::kUInt64)),
          at::empty({0}, query.options())};
}

Tensor flash_forward_inplace(Tensor& out, const Tensor& query, const Tensor& key, const Tensor& value,
                             OptionalTensor cum_seq_q, OptionalTensor cum_seq_k, int64_t, int64_t,
                             double dropout_p, bool is_causal, bool, std::optional<double> scale,
                             OptionalInt window_size_left, OptionalInt window_size_right,
                             OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                             OptionalTensor block_table, OptionalInt) {
  check_flash(query);
  TORCH_CHECK(dropout_p == 0, "_flash_attention_forward_no_dropout_inplace: dropout must be 0, got ",
              dropout_p);
  auto [output, sums, state] =
      run(query, key, value, cum_seq_q, cum_seq_k, 0, 0, 0, is_causal, scale, window_size_left,
          window_size_right, seqused_k, alibi_slopes, block_table, false, std::nullopt, std::nullopt);
  out.copy_(output);
  return sums;
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
    const Tensor& logsumexp, const Tensor& cum_seq_q, const Tensor& cum_seq_k, int64_t max_q, int64_t max_k,
    double dropout_p, bool is_causal, const Tensor& rng_state, const Tensor&, std::optional<double> scale,
    OptionalInt window_size_left, OptionalInt window_size_right) {
  check_flash(query);
  return packed_attention_backward({query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                                    is_causal, scale, window_size_left, window_size_right},
                                   grad_out, out, logsumexp, rng_state.view(at::kLong));
}

// The random numbers that decided on dropout under a seed: a weight was kept where its number is greater than
// the probability. PyTorch's tests of CUDA's kernels ask for them.
Tensor& fill_dropout_mask(Tensor& self, double, int64_t seed, int64_t) {
  return self.is_meta() ? self : fill_with_dropout_numbers(self, generator_from(static_cast<uint64_t>(seed)));
}

// The same of a state that lies on the device.
Tensor& fill_from_state(Tensor& self, const Tensor& state, int64_t sequence) {
  return self.is_meta() ? self : fill_with_dropout_numbers(self, generator_of(state, sequence));
}

}  // namespace

Tensor dropout_numbers(const Tensor& weights, const Tensor& state, int64_t sequence) {
  using Signature = decltype(fill_from_state);
  static const auto op = find_fused<Signature>("loom_fused::_fill_mem_eff_dropout_mask_", "state");
  Tensor numbers = at::empty(weights.sizes(), weights.options().dtype(at::kFloat));
  return op.call(numbers, state, sequence);
}

std::tuple<Tensor, Tensor, Tensor> packed_attention(const PackedCall& call, OptionalInt sum_rows) {
  using Signature = decltype(run);
  static const auto op = find_fused<Signature>("loom_fused::_flash_attention_forward");
  return op.call(call.query, call.key, call.value, call.starts_q, call.starts_k, call.max_q, call.max_k,
                 call.dropout, call.is_causal, call.scale, call.left, call.right, call.used_k, call.slopes,
                 call.pages, call.is_from_top, sum_rows, default_generator());
}

std::tuple<Tensor, Tensor, Tensor> packed_attention_backward(const PackedCall& call, const Tensor& gradient,
                                                             const Tensor& output, const Tensor& sums,
                                                             const Tensor& seed) {
  using Signature = decltype(run_backward);
  static const auto op = find_fused<Signature>("loom_fused::_flash_attention_backward");
  return op.call(gradient, call.query, call.key, call.value, output, sums, call.starts_q, call.starts_k,
                 call.max_q, call.max_k, call.dropout, call.is_causal, seed, call.scale, call.left,
                 call.right, call.is_from_top);
}

void register_packed_attention() {
  const std::string operands =
      "Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, int max_k, "
      "float dropout_p, bool is_causal, ";
  const std::string window = "*, float? scale=None, int? window_size_left=None, int? window_size_right=None";
  const std::string pages = ", Tensor? seqused_k=None, Tensor? alibi_slopes=None, Tensor? block_table=None";
  define_fused("_flash_attention_forward(" + operands + window + pages +
                   ", bool is_from_top=False, int? sum_rows=None, Generator? generator=None) -> (Tensor, "
                   "Tensor, Tensor)",
               run);
  define_fused(
      "_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor "
      "logsumexp, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, int max_k, float dropout_p, bool "
      "is_causal, Tensor rng_state, " +
          window + ", bool is_from_top=False) -> (Tensor, Tensor, Tensor)",
      run_backward);
  library(own_key()).impl("_flash_attention_forward", flash_forward);
  library(own_key()).impl("_flash_attention_backward", flash_backward);
  implement_fused<&flash_forward_inplace>("_flash_attention_forward_no_dropout_inplace",
                                          "(Tensor(a!) out, " + operands + "bool return_debug_mask, " +
                                              window + pages + ", int? num_splits=None) -> Tensor");
  define_fused("_fill_mem_eff_dropout_mask_.state(Tensor(a!) self, Tensor state, int sequence) -> Tensor(a!)",
               fill_from_state);
  implement_fused<&fill_dropout_mask>(
      "_fill_mem_eff_dropout_mask_",
      "(Tensor(a!) self, float dropout_p, int seed, int offset) -> Tensor(a!)");
}

}  // namespace loom::glue
