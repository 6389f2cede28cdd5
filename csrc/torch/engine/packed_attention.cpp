// The engine's side of attention of packed sequences: made of parts, one sequence after another.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "torch/engine/dropout.h"
#include "torch/engine/fused.h"

namespace loom::glue {

namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> numbers(const Tensor& tensor) {
  const Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

// One sequence after another: its rows of query and key, and which pairs of them see each other.
class Sequences {
 public:
  explicit Sequences(const PackedAttention& call) : own_(call) {
    if (!own_.is_packed()) return;
    starts_q_ = numbers(*own_.starts_q);
    if (is_given(own_.used_k)) used_k_ = numbers(*own_.used_k);
    if (!is_given(own_.pages)) starts_k_ = numbers(*own_.starts_k);
    check(starts_q_, own_.query.size(0), "queries");
    for (int64_t i = 0; i < own_.count(); ++i) check_length(i);
    if (!starts_k_.empty()) check(starts_k_, own_.key.size(0), "keys");
    for (size_t i = 0; i < used_k_.size(); ++i) check_used(static_cast<int64_t>(i));
  }

  // (heads, rows, width), in float32; a view or a copy.
  Tensor query_of(const Tensor& tensor, int64_t i) const { return by_head(rows(tensor, starts_q_, i)); }
  Tensor key_of(const Tensor& tensor, int64_t i) const {
    return by_head(keys(tensor, i)).repeat_interleave(own_.repeats(), 0);
  }
  // Where rows of the result of the packed layout go: (rows, heads, width).
  Tensor queries_of(const Tensor& result, int64_t i) const { return rows(result, starts_q_, i); }
  Tensor keys_of(const Tensor& result, int64_t i) const { return keys(result, i); }
  // (heads, rows) of a log of sums.
  Tensor sums_of(const Tensor& sums, int64_t i) const {
    if (!own_.is_packed()) return sums[i].narrow(-1, 0, own_.query.size(1));
    const int64_t rows = starts_q_[i + 1] - starts_q_[i];
    TORCH_CHECK(sums.dim() == 2 || rows <= sums.size(-1), "attention of packed sequences: sequence ", i,
                " has ", rows, " queries, but logsumexp has ", sums.size(-1), " rows");
    return sums.dim() == 3 ? sums[i].narrow(-1, 0, rows) : sums.narrow(-1, starts_q_[i], rows);
  }

  // The products of queries and keys, −∞ where they do not see each other.
  Tensor scores(const Tensor& query, const Tensor& key, int64_t i) const {
    const int64_t rows = query.size(1), columns = key.size(1);
    Tensor products = at::matmul(query, key.transpose(1, 2)).mul_(own_.scale);
    // The last query stands beside the last key, or the first beside the first.
    const int64_t first = own_.is_from_top ? 0 : columns - rows;
    const Tensor place = at::arange(rows, query.options().dtype(at::kLong)).add_(first).unsqueeze_(1);
    const Tensor distance = place.sub(at::arange(columns, query.options().dtype(at::kLong)));
    if (is_given(own_.slopes)) {
      const Tensor slopes = own_.slopes->dim() == 2 ? (*own_.slopes)[i] : *own_.slopes;
      products.sub_(distance.abs().mul(slopes.to(at::kFloat).view({-1, 1, 1})));
    }
    if (own_.left >= 0) products.masked_fill_(distance.gt(own_.left), -kInfinity);
    if (own_.right >= 0) products.masked_fill_(distance.lt(-own_.right), -kInfinity);
    return products;
  }

 private:
  static void check(const std::vector<int64_t>& starts, int64_t rows, const char* kind) {
    TORCH_CHECK(!starts.empty() && starts.front() >= 0 && std::is_sorted(starts.begin(), starts.end()) &&
                    starts.back() <= rows,
                "attention of packed sequences: where sequences of ", kind, " start must rise from 0 to ",
                rows, ", got ", at::IntArrayRef(starts));
  }

  void check_length(int64_t i) const {
    const int64_t length = starts_q_[i + 1] - starts_q_[i];
    TORCH_CHECK(length <= own_.max_q, "attention of packed sequences: sequence ", i, " has ", length,
                " queries, more than max_seqlen_q, ", own_.max_q, ": a GPU would leave the others out");
  }

  // Pages behind the keys that a sequence uses may have any number.
  int64_t num_pages(int64_t i) const {
    const int64_t page = std::max<int64_t>(own_.key.size(1), 1);
    return (used_k_[i] + page - 1) / page;
  }
  void check_used(int64_t i) const {
    const bool is_paged = is_given(own_.pages);
    const int64_t room = is_paged ? own_.pages->size(1) * own_.key.size(1) : starts_k_[i + 1] - starts_k_[i];
    TORCH_CHECK(used_k_[i] >= 0 && used_k_[i] <= room,
                "attention of packed sequences: seqused_k of sequence ", i, " must be from 0 to ", room,
                ", got ", used_k_[i]);
    if (!is_paged) return;
    for (const int64_t page : numbers((*own_.pages)[i].narrow(0, 0, num_pages(i)))) {
      TORCH_CHECK(page >= 0 && page < own_.key.size(0),
                  "attention of packed sequences: block_table of sequence ", i, " must have numbers of ",
                  own_.key.size(0), " pages, got ", page);
    }
  }

  Tensor rows(const Tensor& tensor, const std::vector<int64_t>& starts, int64_t i) const {
    return own_.is_packed() ? tensor.narrow(0, starts[i], starts[i + 1] - starts[i]) : tensor[i];
  }
  Tensor keys(const Tensor& tensor, int64_t i) const {
    if (is_given(own_.pages)) {
      const Tensor pages = (*own_.pages)[i].narrow(0, 0, num_pages(i));
      return tensor.index_select(0, pages).flatten(0, 1).narrow(0, 0, used_k_[i]);
    }
    const Tensor all = rows(tensor, starts_k_, i);
    return used_k_.empty() ? all : all.narrow(0, 0, used_k_[i]);
  }
  static Tensor by_head(const Tensor& rows) { return rows.transpose(0, 1).to(at::kFloat); }

  const PackedAttention& own_;
  std::vector<int64_t> starts_q_, starts_k_, used_k_;
};

Tensor empty_sums(const PackedAttention& call, std::optional<int64_t> sum_rows) {
  const auto options = call.query.options().dtype(at::kFloat);
  if (call.is_packed() && !sum_rows.has_value()) {
    return at::empty({call.heads(), call.query.size(0)}, options);
  }
  return at::empty({call.count(), call.heads(), sum_rows.value_or(call.query.size(1))}, options);
}

// Adds up the gradients of heads that were repeated: (heads, rows, width) to (rows, fewer heads, width).
Tensor summed(const Tensor& gradient, int64_t repeats) {
  return gradient.unflatten(0, {-1, repeats}).sum(1).transpose(0, 1);
}

}  // namespace

AttentionResult engine_packed_attention(const PackedAttention& call, std::optional<int64_t> sum_rows,
                                        std::optional<at::Generator> generator) {
  std::vector<int64_t> sizes = call.query.sizes().vec();
  sizes.back() = call.value.size(-1);
  Tensor output = at::empty(sizes, call.query.options());
  Tensor sums = empty_sums(call, sum_rows);
  Tensor state = at::empty({2}, call.query.options().dtype(at::kLong));
  Tensor offset = at::empty({}, state.options());
  if (call.query.is_meta()) return {output, sums, state, offset};
  output.zero_();
  sums.fill_(kInfinity);
  state.zero_();
  const Sequences sequences(call);
  if (call.dropout > 0) draw_numbers(state, generator);
  offset.copy_(state[1]);
  for (int64_t i = 0; i < call.count(); ++i) {
    const Tensor query = sequences.query_of(call.query, i), key = sequences.key_of(call.key, i);
    if (query.size(1) == 0 || key.size(1) == 0) continue;
    const Tensor scores = sequences.scores(query, key, i);
    const Tensor sum = scores.logsumexp(-1);
    const Tensor sees_none = sum.eq(-kInfinity);
    Tensor weights = scores.sub(sum.unsqueeze(-1)).exp_().masked_fill_(sees_none.unsqueeze(-1), 0);
    if (call.dropout > 0)
      weights.mul_(kept_weights(
          weights, call.dropout,
          DropoutNumbers(state[0], state[1], i, static_cast<DropoutScheme>(call.dropout_scheme))));
    sequences.queries_of(output, i).copy_(
        at::matmul(weights, sequences.key_of(call.value, i)).transpose(0, 1));
    if (sums.size(-1) != 0) sequences.sums_of(sums, i).copy_(sum.masked_fill(sees_none, kInfinity));
  }
  return {output, sums, state, offset};
}

std::tuple<Tensor, Tensor, Tensor> engine_packed_attention_backward(const PackedAttention& call,
                                                                    const Tensor& gradient,
                                                                    const Tensor& output, const Tensor& sums,
                                                                    const Tensor& seed,
                                                                    const Tensor& offset) {
  std::tuple<Tensor, Tensor, Tensor> gradients{at::empty_like(call.query), at::empty_like(call.key),
                                               at::empty_like(call.value)};
  if (call.query.is_meta()) return gradients;
  auto& [grad_query, grad_key, grad_value] = gradients;
  for (Tensor* result : {&grad_query, &grad_key, &grad_value}) result->zero_();
  const Sequences sequences(call);
  for (int64_t i = 0; i < call.count(); ++i) {
    const Tensor query = sequences.query_of(call.query, i), key = sequences.key_of(call.key, i);
    if (query.size(1) == 0 || key.size(1) == 0) continue;
    const Tensor upstream = sequences.query_of(gradient, i);
    // e^(score − ∞) is 0 for a query that saw no key.
    const Tensor weights =
        sequences.scores(query, key, i).sub_(sequences.sums_of(sums, i).unsqueeze(-1)).exp_();
    Tensor of_weights = at::matmul(upstream, sequences.key_of(call.value, i).transpose(1, 2));
    Tensor used = weights;
    if (call.dropout > 0) {
      const Tensor kept =
          kept_weights(weights, call.dropout,
                       DropoutNumbers(seed, offset, i, static_cast<DropoutScheme>(call.dropout_scheme)));
      of_weights.mul_(kept);
      used = weights.mul(kept);
    }
    const Tensor along = upstream.mul(sequences.query_of(output, i)).sum(-1, /*keepdim=*/true);
    const Tensor of_scores = of_weights.sub_(along).mul_(weights).mul_(call.scale);
    sequences.queries_of(grad_query, i).copy_(at::matmul(of_scores, key).transpose(0, 1));
    sequences.keys_of(grad_key, i)
        .copy_(summed(at::matmul(of_scores.transpose(1, 2), query), call.repeats()));
    sequences.keys_of(grad_value, i)
        .copy_(summed(at::matmul(used.transpose(1, 2), upstream), call.repeats()));
  }
  return gradients;
}

}  // namespace loom::glue
