// Attention of sequences of different lengths, packed one behind another, under the names of CUDA's flash
// attention: what `torch.nn.attention.varlen` calls.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "torch/kernels/fused_op.h"
#include "torch/kernels/optional_tensor.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;

// What forward and backward are given. Packed: query (rows, heads, width), and where each sequence starts.
// Else: query (batch, rows, heads, width). Key and value have as many heads, or a divisor of that.
struct Arguments {
  Tensor query, key, value;
  std::optional<Tensor> starts_q, starts_k, used_k, slopes, pages;
  double scale;
  bool is_causal;
  int64_t left, right;  // of the window; negative: unlimited

  Arguments(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor starts_q,
            OptionalTensor starts_k, OptionalTensor used_k, OptionalTensor slopes, OptionalTensor pages,
            double dropout, bool is_causal, std::optional<double> scale, OptionalInt left, OptionalInt right)
      : query(query),
        key(key),
        value(value),
        starts_q(starts_q),
        starts_k(starts_k),
        used_k(used_k),
        slopes(slopes),
        pages(pages),
        scale(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))),
        is_causal(is_causal),
        left(left.value_or(-1)),
        right(is_causal ? 0 : right.value_or(-1)) {
    TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16,
                "FlashAttention only support fp16 and bf16 data type");
    TORCH_CHECK(key.scalar_type() == query.scalar_type() && value.scalar_type() == query.scalar_type(),
                "query, key and value must have the same dtype, got ", query.scalar_type(), ", ",
                key.scalar_type(), " and ", value.scalar_type());
    TORCH_CHECK(dropout == 0, "_flash_attention_forward: dropout of ", dropout,
                " is not supported; torch.nn.functional.scaled_dot_product_attention takes it");
    TORCH_CHECK(query.dim() == (is_packed() ? 3 : 4), "_flash_attention_forward: a query of the shape ",
                query.sizes(),
                is_packed() ? " is not (rows, heads, width)" : " is not (batch, rows, heads, width)");
    TORCH_CHECK(heads() % std::max<int64_t>(key.size(-2), 1) == 0, "_flash_attention_forward: ", heads(),
                " heads of the query are no multiple of ", key.size(-2), " of the key");
    TORCH_CHECK(!is_given(pages) || is_given(used_k),
                "_flash_attention_forward: block_table needs seqused_k");
  }

  bool is_packed() const { return is_given(starts_q); }
  int64_t heads() const { return query.size(-2); }
  int64_t repeats() const { return heads() / std::max<int64_t>(key.size(-2), 1); }
  int64_t count() const { return is_packed() ? starts_q->numel() - 1 : query.size(0); }
};

std::vector<int64_t> numbers(const Tensor& tensor) {
  const Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

// One sequence after another: its rows of query and key, and which pairs of them see each other.
class Sequences {
 public:
  explicit Sequences(const Arguments& arguments) : own_(arguments) {
    if (!own_.is_packed()) return;
    starts_q_ = numbers(*own_.starts_q);
    if (is_given(own_.used_k)) used_k_ = numbers(*own_.used_k);
    if (!is_given(own_.pages)) starts_k_ = is_given(own_.starts_k) ? numbers(*own_.starts_k) : starts_q_;
    check(starts_q_, own_.query.size(0), "cum_seq_q");
    if (!starts_k_.empty()) check(starts_k_, own_.key.size(0), "cum_seq_k");
    TORCH_CHECK(starts_k_.empty() || starts_k_.size() == starts_q_.size(),
                "_flash_attention_forward: ", starts_q_.size() - 1, " sequences of queries and ",
                starts_k_.size() - 1, " of keys");
  }

  // (heads, rows, width), in float32; a view or a copy.
  Tensor query_of(const Tensor& tensor, int64_t i) const { return by_head(rows(tensor, starts_q_, i)); }
  Tensor key_of(const Tensor& tensor, int64_t i) const {
    return by_head(keys(tensor, i)).repeat_interleave(own_.repeats(), 0);
  }
  // Where rows of the result of the packed layout go: (rows, heads, width).
  Tensor queries_of(const Tensor& result, int64_t i) const { return rows(result, starts_q_, i); }
  Tensor keys_of(const Tensor& result, int64_t i) const { return keys(result, i); }
  // (heads, rows) of a log of sums: packed (heads, all rows), else (batch, heads, rows).
  Tensor sums_of(const Tensor& sums, int64_t i) const {
    return own_.is_packed() ? sums.narrow(-1, starts_q_[i], starts_q_[i + 1] - starts_q_[i]) : sums[i];
  }

  // The products of queries and keys, −∞ where they do not see each other.
  Tensor scores(const Tensor& query, const Tensor& key, int64_t i) const {
    const int64_t rows = query.size(1), columns = key.size(1);
    Tensor products = at::matmul(query, key.transpose(1, 2)).mul_(own_.scale);
    // The last query stands beside the last key.
    const Tensor place =
        at::arange(rows, query.options().dtype(at::kLong)).add_(columns - rows).unsqueeze_(1);
    const Tensor distance = place - at::arange(columns, query.options().dtype(at::kLong));
    if (is_given(own_.slopes)) {
      const Tensor slopes = own_.slopes->dim() == 2 ? (*own_.slopes)[i] : *own_.slopes;
      products.sub_(slopes.to(at::kFloat).view({-1, 1, 1}) * distance.abs());
    }
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    if (own_.left >= 0) products.masked_fill_(distance.gt(own_.left), kHidden);
    if (own_.right >= 0) products.masked_fill_(distance.lt(-own_.right), kHidden);
    return products;
  }

 private:
  static void check(const std::vector<int64_t>& starts, int64_t rows, const char* name) {
    TORCH_CHECK(!starts.empty() && starts.front() >= 0 && std::is_sorted(starts.begin(), starts.end()) &&
                    starts.back() <= rows,
                "_flash_attention_forward: ", name, " must rise from 0 to ", rows, ", got ",
                at::IntArrayRef(starts));
  }

  Tensor rows(const Tensor& tensor, const std::vector<int64_t>& starts, int64_t i) const {
    return own_.is_packed() ? tensor.narrow(0, starts[i], starts[i + 1] - starts[i]) : tensor[i];
  }
  Tensor keys(const Tensor& tensor, int64_t i) const {
    const int64_t used = used_k_.empty() ? std::numeric_limits<int64_t>::max() : used_k_[i];
    if (is_given(own_.pages)) {
      return tensor.index_select(0, (*own_.pages)[i].to(at::kLong).clamp_min(0))
          .flatten(0, 1)
          .narrow(0, 0, used);
    }
    const Tensor all = rows(tensor, starts_k_, i);
    return all.narrow(0, 0, std::min(used, all.size(0)));
  }
  static Tensor by_head(const Tensor& rows) { return rows.transpose(0, 1).to(at::kFloat); }

  const Arguments& own_;
  std::vector<int64_t> starts_q_, starts_k_, used_k_;
};

// The output, and log Σ exp of the scores: ∞ for a query that sees no key.
std::tuple<Tensor, Tensor> run(const Arguments& given) {
  Tensor output = at::empty_like(given.query);
  const auto options = given.query.options().dtype(at::kFloat);
  Tensor sums = given.is_packed()
                    ? at::empty({given.heads(), given.query.size(0)}, options)
                    : at::empty({given.query.size(0), given.heads(), given.query.size(1)}, options);
  if (given.query.is_meta()) return {output, sums};
  output.zero_();
  sums.fill_(std::numeric_limits<double>::infinity());
  const Sequences sequences(given);
  for (int64_t i = 0; i < given.count(); ++i) {
    const Tensor query = sequences.query_of(given.query, i), key = sequences.key_of(given.key, i);
    if (query.size(1) == 0 || key.size(1) == 0) continue;
    const Tensor scores = sequences.scores(query, key, i);
    const Tensor sum = scores.logsumexp(-1);
    const Tensor sees_none = sum.eq(-std::numeric_limits<double>::infinity());
    const Tensor weights = scores.sub(sum.unsqueeze(-1)).exp_().masked_fill_(sees_none.unsqueeze(-1), 0);
    sequences.queries_of(output, i).copy_(
        at::matmul(weights, sequences.key_of(given.value, i)).transpose(0, 1));
    sequences.sums_of(sums, i).copy_(sum.masked_fill(sees_none, std::numeric_limits<double>::infinity()));
  }
  return {output, sums};
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Forward flash_forward(const Tensor& query, const Tensor& key, const Tensor& value, OptionalTensor cum_seq_q,
                      OptionalTensor cum_seq_k, int64_t, int64_t, double dropout_p, bool is_causal, bool,
                      std::optional<double> scale, OptionalInt window_size_left,
                      OptionalInt window_size_right, OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                      OptionalTensor block_table, OptionalInt) {
  auto [output, sums] = run({query, key, value, cum_seq_q, cum_seq_k, seqused_k, alibi_slopes, block_table,
                             dropout_p, is_causal, scale, window_size_left, window_size_right});
  const auto words = query.options().dtype(at::kUInt64);
  return {output, sums, at::zeros({2}, words), at::zeros({}, words), at::empty({0}, query.options())};
}

Tensor flash_forward_inplace(Tensor& out, const Tensor& query, const Tensor& key, const Tensor& value,
                             OptionalTensor cum_seq_q, OptionalTensor cum_seq_k, int64_t, int64_t,
                             double dropout_p, bool is_causal, bool, std::optional<double> scale,
                             OptionalInt window_size_left, OptionalInt window_size_right,
                             OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                             OptionalTensor block_table, OptionalInt) {
  auto [output, sums] = run({query, key, value, cum_seq_q, cum_seq_k, seqused_k, alibi_slopes, block_table,
                             dropout_p, is_causal, scale, window_size_left, window_size_right});
  out.copy_(output);
  return sums;
}

// Adds up the gradients of heads that were repeated: (heads, rows, width) to (rows, fewer heads, width).
Tensor summed(const Tensor& gradient, int64_t repeats) {
  return gradient.unflatten(0, {-1, repeats}).sum(1).transpose(0, 1);
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& grad_out, const Tensor& query,
                                                  const Tensor& key, const Tensor& value, const Tensor& out,
                                                  const Tensor& logsumexp, const Tensor& cum_seq_q,
                                                  const Tensor& cum_seq_k, int64_t, int64_t, double dropout_p,
                                                  bool is_causal, const Tensor&, const Tensor&,
                                                  std::optional<double> scale, OptionalInt window_size_left,
                                                  OptionalInt window_size_right) {
  const Arguments given(query, key, value, cum_seq_q, cum_seq_k, {}, {}, {}, dropout_p, is_causal, scale,
                        window_size_left, window_size_right);
  std::tuple<Tensor, Tensor, Tensor> gradients{at::empty_like(query), at::empty_like(key),
                                               at::empty_like(value)};
  if (query.is_meta()) return gradients;
  auto& [grad_query, grad_key, grad_value] = gradients;
  for (Tensor* gradient : {&grad_query, &grad_key, &grad_value}) gradient->zero_();
  const Sequences sequences(given);
  for (int64_t i = 0; i < given.count(); ++i) {
    const Tensor own_query = sequences.query_of(query, i), own_key = sequences.key_of(key, i);
    if (own_query.size(1) == 0 || own_key.size(1) == 0) continue;
    const Tensor gradient = sequences.query_of(grad_out, i);
    // e^(score − ∞) is 0 for a query that saw no key.
    const Tensor weights =
        sequences.scores(own_query, own_key, i).sub_(sequences.sums_of(logsumexp, i).unsqueeze(-1)).exp_();
    const Tensor along = (gradient * sequences.query_of(out, i)).sum(-1, /*keepdim=*/true);
    const Tensor of_weights = at::matmul(gradient, sequences.key_of(value, i).transpose(1, 2));
    const Tensor of_scores = of_weights.sub(along).mul_(weights).mul_(given.scale);
    sequences.queries_of(grad_query, i).copy_(at::matmul(of_scores, own_key).transpose(0, 1));
    sequences.keys_of(grad_key, i)
        .copy_(summed(at::matmul(of_scores.transpose(1, 2), own_query), given.repeats()));
    sequences.keys_of(grad_value, i)
        .copy_(summed(at::matmul(weights.transpose(1, 2), gradient), given.repeats()));
  }
  return gradients;
}

}  // namespace

void register_packed_attention() {
  const std::string common =
      "Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, int max_q, int max_k, "
      "float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale=None, int? "
      "window_size_left=None, int? window_size_right=None, Tensor? seqused_k=None, Tensor? "
      "alibi_slopes=None, Tensor? block_table=None, int? num_splits=None)";
  implement_fused<&flash_forward>("_flash_attention_forward",
                                  "(" + common + " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  implement_fused<&flash_forward_inplace>("_flash_attention_forward_no_dropout_inplace",
                                          "(Tensor(a!) out, " + common + " -> Tensor");
  implement_fused<&flash_backward>(
      "_flash_attention_backward",
      "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor "
      "cum_seq_q, Tensor cum_seq_k, int max_q, int max_k, float dropout_p, bool is_causal, Tensor rng_state, "
      "Tensor unused, *, float? scale=None, int? window_size_left=None, int? window_size_right=None) -> "
      "(Tensor, Tensor, Tensor)");
}

}  // namespace loom::glue
