// Attention of sequences of different lengths, packed one behind another, under the names of CUDA's flash
// attention: what `torch.nn.attention.varlen` and nested tensors call.
#include "torch/kernels/attention/packed_attention.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>

#include "torch/engine/fused.h"
#include "torch/kernels/attention/attention_checks.h"
#include "torch/kernels/attention/fused_attention.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;

// What the engine is given: windows and the scale as numbers.
PackedAttention checked(const PackedCall& own) {
  const Tensor& query = own.query;
  const Tensor& key = own.key;
  TORCH_CHECK(query.dim() > 0, "attention: a query without dimensions");
  PackedAttention call{query,
                       key,
                       own.value,
                       own.starts_q,
                       own.starts_k,
                       own.used_k,
                       own.slopes,
                       own.pages,
                       own.max_q,
                       own.dropout,
                       own.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))),
                       own.is_from_top,
                       own.left.value_or(-1),
                       own.is_causal ? 0 : own.right.value_or(-1)};
  check_packed(call);
  return call;
}

AttentionResult run(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor starts_q,
                    OptionalTensor starts_k, int64_t max_q, int64_t max_k, double dropout, bool is_causal,
                    std::optional<double> scale, OptionalInt left, OptionalInt right, OptionalTensor used_k,
                    OptionalTensor slopes, OptionalTensor pages, bool is_from_top, OptionalInt sum_rows,
                    std::optional<at::Generator> generator, int64_t dropout_scheme) {
  PackedAttention call = checked({query, key, value, starts_q, starts_k, max_q, max_k, dropout, is_causal,
                                  scale, left, right, used_k, slopes, pages, is_from_top});
  call.dropout_scheme = dropout_scheme;
  return engine_packed_attention(call, sum_rows, std::move(generator));
}

std::tuple<Tensor, Tensor, Tensor> run_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& output,
    const Tensor& sums, OptionalTensor starts_q, OptionalTensor starts_k, int64_t max_q, int64_t max_k,
    double dropout, bool is_causal, const Tensor& seed, const Tensor& offset, std::optional<double> scale,
    OptionalInt left, OptionalInt right, bool is_from_top, int64_t dropout_scheme) {
  PackedAttention call = checked({query,
                                  key,
                                  value,
                                  starts_q,
                                  starts_k,
                                  max_q,
                                  max_k,
                                  dropout,
                                  is_causal,
                                  scale,
                                  left,
                                  right,
                                  {},
                                  {},
                                  {},
                                  is_from_top});
  call.dropout_scheme = dropout_scheme;
  check_packed_saved(call, gradient, output, sums);
  return engine_packed_attention_backward(call, gradient, output, sums, seed, offset);
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Forward flash_forward(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor cum_seq_q,
                      OptionalTensor cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p,
                      bool is_causal, bool, std::optional<double> scale, OptionalInt window_size_left,
                      OptionalInt window_size_right, OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                      OptionalTensor block_table, OptionalInt) {
  check_flash(query, key, value);
  auto [output, sums, state, offset] =
      packed_attention({query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, scale,
                        window_size_left, window_size_right, seqused_k, alibi_slopes, block_table});
  return {output, sums, state.view(at::kUInt64), offset.view(at::kUInt64), at::empty({0}, query.options())};
}

Tensor flash_forward_inplace(Tensor& out, const Tensor& query, const Tensor& key, const Tensor& value,
                             OptionalTensor cum_seq_q, OptionalTensor cum_seq_k, int64_t max_q, int64_t max_k,
                             double dropout_p, bool is_causal, bool, std::optional<double> scale,
                             OptionalInt window_size_left, OptionalInt window_size_right,
                             OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                             OptionalTensor block_table, OptionalInt) {
  check_flash(query, key, value);
  TORCH_CHECK(dropout_p == 0, "_flash_attention_forward_no_dropout_inplace: dropout must be 0, got ",
              dropout_p);
  const PackedAttention call =
      checked({query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, 0, is_causal, scale, window_size_left,
               window_size_right, seqused_k, alibi_slopes, block_table});
  TORCH_CHECK(out.scalar_type() == query.scalar_type(), "Output must have the same dtype as inputs, got ",
              out.scalar_type());
  TORCH_CHECK(out.sizes() == query.sizes(), "out must have the shape of the query, ", query.sizes(), ", got ",
              out.sizes());
  auto [output, sums, state, offset] = engine_packed_attention(call, std::nullopt, std::nullopt);
  out.copy_(output);
  return sums;
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
    const Tensor& logsumexp, const Tensor& cum_seq_q, const Tensor& cum_seq_k, int64_t max_q, int64_t max_k,
    double dropout_p, bool is_causal, const Tensor& rng_state, const Tensor& unused,
    std::optional<double> scale, OptionalInt window_size_left, OptionalInt window_size_right) {
  check_flash(query, key, value);
  return packed_attention_backward({query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                                    is_causal, scale, window_size_left, window_size_right},
                                   grad_out, out, logsumexp, saved_state(rng_state, unused, dropout_p));
}

}  // namespace

AttentionResult packed_attention(const PackedCall& call, OptionalInt sum_rows) {
  static const auto op = find_fused<decltype(run)>("loom_fused::_flash_attention_forward");
  return op.call(call.query, call.key, call.value, call.starts_q, call.starts_k, call.max_q, call.max_k,
                 call.dropout, call.is_causal, call.scale, call.left, call.right, call.used_k, call.slopes,
                 call.pages, call.is_from_top, sum_rows, default_generator(),
                 scheme_of(call.query, /*is_efficient=*/false));
}

std::tuple<Tensor, Tensor, Tensor> packed_attention_backward(const PackedCall& call, const Tensor& gradient,
                                                             const Tensor& output, const Tensor& sums,
                                                             const DropoutState& state) {
  static const auto op = find_fused<decltype(run_backward)>("loom_fused::_flash_attention_backward");
  return op.call(gradient, call.query, call.key, call.value, output, sums, call.starts_q, call.starts_k,
                 call.max_q, call.max_k, call.dropout, call.is_causal, state.seed, state.offset, call.scale,
                 call.left, call.right, call.is_from_top, scheme_of(call.query, /*is_efficient=*/false));
}

void register_packed_attention() {
  const std::string operands =
      "Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, int max_k, "
      "float dropout_p, bool is_causal, ";
  const std::string window = "*, float? scale=None, int? window_size_left=None, int? window_size_right=None";
  const std::string pages = ", Tensor? seqused_k=None, Tensor? alibi_slopes=None, Tensor? block_table=None";
  define_fused("_flash_attention_forward(" + operands + window + pages +
                   ", bool is_from_top=False, int? sum_rows=None, Generator? generator=None, int "
                   "dropout_scheme=0) -> (Tensor, "
                   "Tensor, Tensor, Tensor)",
               run);
  define_fused(
      "_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor "
      "logsumexp, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, int max_k, float dropout_p, bool "
      "is_causal, Tensor seed, Tensor offset, " +
          window + ", bool is_from_top=False, int dropout_scheme=0) -> (Tensor, Tensor, Tensor)",
      run_backward);
  library(own_key()).impl("_flash_attention_forward", flash_forward);
  library(own_key()).impl("_flash_attention_backward", flash_backward);
  implement_fused<&flash_forward_inplace>("_flash_attention_forward_no_dropout_inplace",
                                          "(Tensor(a!) out, " + operands + "bool return_debug_mask, " +
                                              window + pages + ", int? num_splits=None) -> Tensor");
}

}  // namespace loom::glue
