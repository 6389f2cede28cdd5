#include "torch/kernels/attention/attention_checks.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <array>
#include <vector>

#include "torch/kernels/attention/attention_choice.h"

namespace loom::glue {

namespace {

using at::Tensor;

void check_dropout(double dropout) {
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "dropout must be a probability from 0 to 1, got ", dropout);
}

void check_results(const char* name, const Tensor& tensor, at::IntArrayRef sizes, const Tensor& query) {
  TORCH_CHECK(tensor.sizes() == sizes && tensor.scalar_type() == query.scalar_type(), "attention: the ", name,
              " must be ", query.scalar_type(), " of the sizes ", sizes, ", got ", tensor.scalar_type(),
              " of ", tensor.sizes());
}

void check_sums(const Tensor& sums, bool fits, c10::ScalarType dtype) {
  TORCH_CHECK(fits && sums.scalar_type() == dtype,
              "attention: logsumexp must be what forward returned with it, of ", dtype, ", got ",
              sums.scalar_type(), " of ", sums.sizes());
}

void check_numbers(const char* name, OptionalTensor tensor, bool fits) {
  TORCH_CHECK(!is_given(tensor) || tensor->scalar_type() == at::kInt, name, " must have dtype int32, got ",
              tensor->scalar_type());
  TORCH_CHECK(!is_given(tensor) || fits, name, " must have a number for each sequence, got ",
              tensor->sizes());
}

void check_starts(const char* name, OptionalTensor starts) {
  check_numbers(name, starts, is_given(starts) && starts->dim() == 1);
  TORCH_CHECK(!is_given(starts) || starts->numel() > 1, name, ": batch size must be positive");
}

// Keys and values of one call: (rows, heads, width), dense ones with a batch, those in pages with pages.
void check_sizes(const PackedAttention& call) {
  const Tensor &query = call.query, &key = call.key, &value = call.value;
  const int64_t dims = call.is_packed() ? 3 : 4, dims_k = is_given(call.pages) ? 4 : dims;
  TORCH_CHECK(query.dim() == dims, "attention: a query of the shape ", query.sizes(),
              call.is_packed() ? " is not (rows, heads, width)" : " is not (batch, rows, heads, width)");
  TORCH_CHECK(key.dim() == dims_k && value.dim() == dims_k, "attention: key and value must have ", dims_k,
              " dimensions, got ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(key.sizes().slice(0, dims_k - 1) == value.sizes().slice(0, dims_k - 1) &&
                  key.size(-1) == query.size(-1) && (call.is_packed() || key.size(0) == query.size(0)),
              "attention: query, key and value do not fit together: ", query.sizes(), ", ", key.sizes(), ", ",
              value.sizes());
  const int64_t shared = key.size(-2);
  TORCH_CHECK(shared == 0 ? call.heads() == 0 : call.heads() % shared == 0,
              "Number of heads in key/value must divide number of heads in query, got ", shared, " and ",
              call.heads());
}

}  // namespace

void check_operands(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor bias,
                    double dropout) {
  check_dropout(dropout);
  TORCH_CHECK(!is_given(bias) || bias->scalar_type() == query.scalar_type(),
              "invalid dtype for bias - should match query's dtype, ", query.scalar_type(), ", got ",
              bias->scalar_type());
  if (operands_fit(query, key, value, bias, /*enable_gqa=*/true)) return;
  const c10::ScalarType dtype = query.scalar_type();
  TORCH_CHECK(!query.is_nested() && !key.is_nested() && !value.is_nested(),
              "attention: query, key and value must be dense, got nested tensors");
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "attention: query, key and value must be [batch, heads, time, width], got ", query.sizes(),
              ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(at::isFloatingType(dtype) && key.scalar_type() == dtype && value.scalar_type() == dtype,
              "attention: query, key and value must have one floating dtype, got ", dtype, ", ",
              key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK(key.size(0) == query.size(0) && value.size(0) == query.size(0),
              "attention: query, key and value must have one batch size, got ", query.size(0), ", ",
              key.size(0), " and ", value.size(0));
  TORCH_CHECK(key.size(1) == value.size(1) &&
                  (key.size(1) == 0 ? query.size(1) == 0 : query.size(1) % key.size(1) == 0),
              "attention: key and value must have the heads of the query, ", query.size(1),
              ", or a divisor of them, got ", key.size(1), " and ", value.size(1));
  TORCH_CHECK(key.size(2) == value.size(2), "attention: key and value must have one length, got ",
              key.size(2), " and ", value.size(2));
  TORCH_CHECK(key.size(3) == query.size(3), "attention: query and key must have one width, got ",
              query.size(3), " and ", key.size(3));
  TORCH_CHECK(bias->dim() == 2 || bias->dim() == 4, "attention: a bias must have 2 or 4 dimensions, got ",
              bias->sizes());
  TORCH_CHECK(false, "attention: a bias must expand to [batch, heads, time of query, time of key], [",
              query.size(0), ", ", query.size(1), ", ", query.size(2), ", ", key.size(2), "], got ",
              bias->sizes());
}

void check_saved(const Tensor& gradient, const Tensor& query, const Tensor& value, const Tensor& output,
                 const Tensor& logsumexp) {
  const std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), value.size(3)};
  check_results("gradient", gradient, sizes, query);
  check_results("output", output, sizes, query);
  TORCH_CHECK(
      logsumexp.dim() != 3 || logsumexp.size(2) != 0 || sizes[2] == 0,
      "attention: forward kept no sums for backward, as if neither query nor key nor value required a "
      "gradient. For a gradient of the mask alone, take torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  check_sums(logsumexp,
             logsumexp.dim() == 3 && logsumexp.size(0) == sizes[0] && logsumexp.size(1) == sizes[1] &&
                 logsumexp.size(2) >= sizes[2],
             at::toOpMathType(query.scalar_type()));
}

void check_packed(const PackedAttention& call) {
  const c10::ScalarType dtype = call.query.scalar_type();
  TORCH_CHECK(call.key.scalar_type() == dtype && call.value.scalar_type() == dtype,
              "query, key and value must have the same dtype, got ", dtype, ", ", call.key.scalar_type(),
              " and ", call.value.scalar_type());
  check_efficient(call.query);
  check_dropout(call.dropout);
  check_starts("cu_seqlens_q", call.starts_q);
  check_starts("cu_seqlens_k", call.starts_k);
  TORCH_CHECK(call.is_packed() || !(is_given(call.starts_k) || is_given(call.used_k) || is_given(call.pages)),
              "attention: cu_seqlens_k, seqused_k and block_table need cu_seqlens_q");
  TORCH_CHECK(
      is_given(call.starts_k) || is_given(call.pages) || !call.is_packed(),
      "cumulative_sequence_length_q and cumulative_sequence_length_k must be both set or both not set");
  TORCH_CHECK(!is_given(call.starts_k) || call.starts_k->numel() == call.starts_q->numel(),
              "attention of packed sequences: ", call.count(), " sequences of queries and ",
              call.starts_k->numel() - 1, " of keys");
  TORCH_CHECK(!is_given(call.used_k) || call.used_k->numel() == call.count(),
              "attention of packed sequences: ", call.count(), " sequences, but lengths of the keys of ",
              call.used_k->numel());
  check_sizes(call);
  check_numbers("seqused_k", call.used_k, is_given(call.used_k) && call.used_k->dim() == 1);
  TORCH_CHECK(!is_given(call.pages) || is_given(call.used_k), "attention: block_table needs seqused_k");
  check_numbers("block_table", call.pages,
                is_given(call.pages) && call.pages->dim() == 2 && call.pages->size(0) == call.count());
  if (!is_given(call.slopes)) return;
  TORCH_CHECK(call.slopes->scalar_type() == at::kFloat, "ALiBi slopes must have dtype fp32, got ",
              call.slopes->scalar_type());
  TORCH_CHECK(call.slopes->sizes() == at::IntArrayRef({call.heads()}) ||
                  call.slopes->sizes() == at::IntArrayRef({call.count(), call.heads()}),
              "ALiBi slopes must be (heads) or (sequences, heads), got ", call.slopes->sizes());
}

void check_packed_saved(const PackedAttention& call, const Tensor& gradient, const Tensor& output,
                        const Tensor& sums) {
  std::vector<int64_t> sizes = call.query.sizes().vec();
  sizes.back() = call.value.size(-1);
  check_results("gradient", gradient, sizes, call.query);
  check_results("output", output, sizes, call.query);
  const bool fits = sums.dim() == 3 ? sums.size(0) == call.count() && sums.size(1) == call.heads() &&
                                          (call.is_packed() || sums.size(2) >= call.query.size(1))
                                    : call.is_packed() &&
                                          sums.sizes() == at::IntArrayRef({call.heads(), call.query.size(0)});
  check_sums(sums, fits, at::kFloat);
}

void check_flash(const Tensor& query, const Tensor& key, const Tensor& value) {
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  for (const Tensor* tensor : {&query, &key, &value}) {
    TORCH_CHECK(tensor->dim() > 0 && tensor->stride(-1) == 1,
                "Input tensor must have contiguous last dimension");
  }
  constexpr int64_t kStep = 8, kMaxWidth = 256;
  const int64_t width = query.size(-1);
  TORCH_CHECK(width % kStep == 0, "head_size must be a multiple of 8, this is ensured by padding! Got ",
              width);
  TORCH_CHECK(width <= kMaxWidth, "FlashAttention forward only supports head dimension at most 256, got ",
              width);
  TORCH_CHECK(value.size(-1) == width, "FlashAttention: v must have the head_size of q, ", width, ", got ",
              value.size(-1));
}

void check_efficient(const Tensor& query) {
  const c10::ScalarType dtype = query.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "Only fp32, half & bf16 supported at the moment, got ", dtype);
}

void check_efficient_sums(const Tensor& sums) {
  constexpr int64_t kStep = 8;
  if (sums.dim() != 3) return;  // not what forward returned
  TORCH_CHECK(sums.size(1) <= 1 || sums.stride(1) % kStep == 0, "LSE is not correctly aligned (strideH)");
  TORCH_CHECK(sums.size(0) <= 1 || sums.stride(0) % kStep == 0, "LSE is not correctly aligned (strideB)");
}

DropoutState saved_state(const Tensor& seed, const Tensor& offset, double dropout) {
  // Nothing is drawn, and what forward saved then has no fixed form: a caller may give anything.
  if (dropout == 0) return {seed, seed};
  const bool is_one = seed.numel() == 2;
  const auto number = [](const Tensor& state, const char* name) {
    const bool is_unsigned = state.scalar_type() == at::kUInt64;
    TORCH_CHECK((is_unsigned || state.scalar_type() == at::kLong) && state.numel() == 1,
                "attention: the state of dropout must be what forward returned, got a ", name, " of ",
                state.scalar_type(), " and the shape ", state.sizes());
    return is_unsigned ? state.view(at::kLong) : state;
  };
  return {number(is_one ? seed.select(0, 0) : seed, "seed"),
          number(is_one ? seed.select(0, 1) : offset, "offset")};
}

}  // namespace loom::glue
