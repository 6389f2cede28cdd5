// What is kept and what is dropped: dropout, bernoulli of a tensor of probabilities, rrelu.
#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <atomic>
#include <numeric>

#include "torch/random/nullary.h"
#include "torch/random/ops.h"

namespace loom::glue::cuda_random {

namespace {

using at::Tensor;

// The same elements in the order in which they lie in memory, where they fill it.
Tensor in_memory_order(const Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }

// So many elements in a row belong to one thread of the vectorised kernel; 1: the plain kernel runs.
int64_t vector_width(const Tensor& input, const Tensor& output) {
  if (!input.is_non_overlapping_and_dense() || !output.is_non_overlapping_and_dense()) return 1;
  constexpr int64_t kBytes = 16;
  const auto size = static_cast<int64_t>(input.element_size());
  int64_t width = kBytes / size;
  const auto address = reinterpret_cast<uintptr_t>(input.const_data_ptr());
  while (width > 1 && (address % static_cast<uintptr_t>(width * size) != 0 || input.numel() % width != 0))
    width /= 2;
  return width;
}

// Numbers of elements in a row. Thread t of the grid has the elements from t * width on, and draws four words
// at a time, of which a narrow vector leaves some unused.
template <typename Store>
void for_vectors(int64_t count, int64_t width, int64_t threads, uint64_t seed, uint64_t offset,
                 const Store& store) {
  constexpr auto kWidth = static_cast<int64_t>(kThreads);
  const int64_t calls = std::max<int64_t>(1, width / 4), used = std::min<int64_t>(width, 4);
  const int64_t vectors = count / width;
  const int64_t runs = (std::min(vectors, threads) + kWidth - 1) / kWidth;
  const int64_t rounds = (vectors + threads - 1) / threads;
  at::parallel_for(0, rounds * runs, 4, [&](int64_t begin, int64_t end) {
    alignas(64) Words words;
    alignas(64) float numbers[4 * kThreads];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t turn = task / runs, first = task % runs * kWidth, start = turn * threads + first;
      if (start >= vectors) continue;
      const int64_t own = std::min({kWidth, threads - first, vectors - start});
      for (int64_t call = 0; call < calls; ++call) {
        const uint64_t counter = offset / kNumbersPerCall + static_cast<uint64_t>(turn * calls + call);
        random::kernels().words(seed, counter, static_cast<uint64_t>(first), static_cast<size_t>(own),
                                used <= 2, words);
        Uniform32::make(words, static_cast<size_t>(own), static_cast<int>(used), numbers);
        for (int64_t i = 0; i < own; ++i) {
          const int64_t place = (start + i) * width + call * 4;
          for (int64_t w = 0; w < used; ++w)
            store(place + w, numbers[static_cast<size_t>(w) * kThreads + static_cast<size_t>(i)]);
        }
      }
    }
  });
}

// Elements `in`, of which each is kept where its number is below `kept`.
template <typename T>
void drop(const T* in, T* out, bool* mask, int64_t count, int64_t width, Wide<T> kept, Draws& draws) {
  using Number = Wide<T>;
  const Policy policy = policy_of(draws.grid, count, 4);
  const uint64_t offset = draws.take(policy.step);
  const Number scale = static_cast<Number>(1.0 / static_cast<double>(kept));
  const auto put = [&](int64_t element, float number) {
    const bool is_kept = static_cast<Number>(number) < kept;
    mask[element] = is_kept;
    out[element] = static_cast<T>(static_cast<Number>(in[element]) * static_cast<Number>(is_kept) * scale);
  };
  if (width > 1) return for_vectors(count, width, policy.threads, draws.seed, offset, put);
  for_numbers<Uniform32>(count, policy.threads, draws.seed, offset,
                         [&](int64_t first, int64_t own, const float* numbers) {
                           for (int64_t i = 0; i < own; ++i) put(first + i, numbers[i]);
                         });
}

// native_dropout(input, p, train, generator) in training.
Results dropout(Arguments arguments, Draws& draws) {
  const Tensor& input = arguments[0].toTensor();
  const double kept = 1 - arguments[1].toDouble();
  Tensor output = at::empty_like(input), mask = at::empty_like(input, input.options().dtype(at::kBool));
  const int64_t width = draws.grid.vector_dropout ? vector_width(input, output) : 1;
  // The vectorised kernel goes by memory, the plain one by index.
  const bool is_dense = width > 1 || input.is_contiguous();
  const Tensor in = width > 1 ? in_memory_order(input) : input.contiguous();
  Tensor out = is_dense ? in_memory_order(output) : at::empty(input.sizes(), input.options());
  Tensor kept_mask = is_dense ? in_memory_order(mask) : at::empty(input.sizes(), mask.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "fused_dropout", [&] {
    drop<scalar_t>(in.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(),
                   kept_mask.mutable_data_ptr<bool>(), input.numel(), width,
                   static_cast<Wide<scalar_t>>(kept), draws);
  });
  if (!is_dense) {
    output.copy_(out);
    mask.copy_(kept_mask);
  }
  return {output, mask};
}

uint64_t step_dropout(const RandomGrid& grid, Arguments arguments) {
  const int64_t count = arguments[0].toTensor().numel();
  return count == 0 ? 0 : policy_of(grid, count, 4).step;
}

// The order of dimensions in which kernels that apply a function to two tensors walk over them: a dimension
// goes before another where its stride is larger in one of them, and smaller in none.
std::vector<int64_t> walk_of(const Tensor& first, const Tensor& second) {
  const int64_t dims = first.dim();
  std::vector<int64_t> order(static_cast<size_t>(dims));
  std::iota(order.begin(), order.end(), 0);
  const auto dim = [&](int64_t place) { return order[static_cast<size_t>(place)]; };
  for (int64_t i = 0; i + 1 < dims; ++i) {
    if (first.size(dim(i)) == 1) continue;
    for (int64_t j = i + 1; j < dims; ++j) {
      if (first.size(dim(j)) == 1) continue;
      bool grows = false, falls = false;
      for (const Tensor* tensor : {&first, &second}) {
        grows |= tensor->stride(dim(i)) < tensor->stride(dim(j));
        falls |= tensor->stride(dim(i)) > tensor->stride(dim(j));
      }
      if (grows && !falls) std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
    }
  }
  return order;
}

void check_probabilities(const Tensor& p) {
  TORCH_CHECK(at::isFloatingType(p.scalar_type()),
              "expected probabilities tensor to have floating type, got ", p.scalar_type());
}

template <typename T, typename P>
void keep_by(const P* probabilities, T* out, int64_t count, Draws& draws) {
  const uint64_t offset = draws.take(10);
  // One thread for four elements, and no thread has more: the numbers are floats, whatever p is.
  const int64_t padded = (count + 3) / 4 * 4;
  std::atomic<bool> is_bad{false};
  for_vectors(padded, 4, padded, draws.seed, offset, [&](int64_t element, float number) {
    if (element >= count) return;
    const P p = probabilities[element];
    if (!(p >= 0 && p <= 1)) is_bad.store(true, std::memory_order_relaxed);
    out[element] = static_cast<T>(static_cast<P>(number) <= p);
  });
  TORCH_CHECK(!is_bad,
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message "
              "be improved?  If so, please report an enhancement request to PyTorch.)");
}

Results keep(Tensor self, const Tensor& p, Draws& draws) {
  check_probabilities(p);
  if (self.numel() == 0) return {self};
  at::assert_no_internal_overlap(self);
  const bool is_double = self.scalar_type() == at::kDouble;
  const Tensor given = p.to(is_double ? at::kDouble : at::kFloat).expand(self.sizes());
  const std::vector<int64_t> order = walk_of(self, given);
  const Tensor ordered = given.permute(order).contiguous();
  Tensor to = self.permute(order);
  const bool is_direct = to.is_contiguous();
  Tensor out = is_direct ? to : at::empty(to.sizes(), to.options());
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, self.scalar_type(),
                             "bernoulli_tensor_cuda_self_", [&] {
                               using P = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
                               keep_by<scalar_t, P>(ordered.const_data_ptr<P>(),
                                                    out.mutable_data_ptr<scalar_t>(), self.numel(), draws);
                             });
  if (!is_direct) to.copy_(out);
  return {self};
}

Results bernoulli_in_place(Arguments arguments, Draws& draws) {
  return keep(arguments[0].toTensor(), arguments[1].toTensor(), draws);
}

Results bernoulli_out(Arguments arguments, Draws& draws) {
  const Tensor& p = arguments[0].toTensor();
  return keep(at::empty(p.sizes(), arguments[2].toTensor().options()), p, draws);
}

uint64_t step_bernoulli(const RandomGrid&, Arguments arguments) {
  return arguments[0].toTensor().numel() == 0 ? 0 : rounded_step(10);
}

// rrelu_with_noise(self, noise, lower, upper, training, generator)
Results leak(Tensor output, Arguments arguments, Draws& draws) {
  const Tensor input = arguments[0].toTensor().contiguous();
  const Tensor& noise = arguments[1].toTensor();
  Tensor slopes = noise.is_contiguous() ? noise : at::empty(noise.sizes(), noise.options());
  const double lower = arguments[2].toScalar().toDouble(), range = arguments[3].toScalar().toDouble() - lower;
  Tensor out = output.is_contiguous() ? output : at::empty(output.sizes(), output.options());
  const int64_t count = input.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, input.scalar_type(), "rrelu_with_noise_out_cuda", [&] {
        using Source = std::conditional_t<std::is_same_v<scalar_t, double>, Uniform64, Uniform32>;
        const Policy policy = policy_of(draws.grid, count, Source::kUnroll);
        const auto* const x = input.const_data_ptr<scalar_t>();
        auto* const y = out.mutable_data_ptr<scalar_t>();
        auto* const slope = slopes.mutable_data_ptr<scalar_t>();
        for_numbers<Source>(count, policy.threads, draws.seed, draws.take(policy.step),
                            [&](int64_t first, int64_t own, const typename Source::Number* numbers) {
                              for (int64_t i = 0; i < own; ++i) {
                                const auto drawn = static_cast<double>(static_cast<scalar_t>(numbers[i]));
                                const auto r = static_cast<scalar_t>(std::fma(drawn, range, lower));
                                const bool leaks = x[first + i] <= 0;
                                y[first + i] = leaks ? static_cast<scalar_t>(x[first + i] * r) : x[first + i];
                                slope[first + i] = leaks ? r : static_cast<scalar_t>(1);
                              }
                            });
      });
  if (!out.is_same(output)) output.copy_(out);
  if (!slopes.is_same(noise)) noise.copy_(slopes);
  return {output};
}

bool draws_slopes(Arguments arguments) {
  return arguments[4].toBool() && arguments[0].toTensor().numel() != 0;
}

Results rrelu(Arguments arguments, Draws& draws) {
  if (!draws_slopes(arguments)) return {};
  return leak(at::empty_like(arguments[0].toTensor(), at::MemoryFormat::Contiguous), arguments, draws);
}

Results rrelu_in_place(Arguments arguments, Draws& draws) {
  if (!draws_slopes(arguments)) return {};
  return leak(arguments[0].toTensor(), arguments, draws);
}

uint64_t step_rrelu(const RandomGrid& grid, Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!draws_slopes(arguments)) return 0;
  return policy_of(grid, self.numel(), self.scalar_type() == at::kDouble ? 2 : 4).step;
}

// Attention's dropout draws nothing where its probability is 0. The flash kernel takes a number for each
// thread of a warp and head, the memory-efficient kernel one for each weight.
constexpr uint64_t kWarpThreads = 32;

// (query, key, value, bias, dropout_p, is_causal, scale, diagonal, sum_rows, generator, scheme)
uint64_t step_attention(const RandomGrid&, Arguments arguments) {
  if (arguments[4].toDouble() == 0) return 0;
  const Tensor& query = arguments[0].toTensor();
  const auto heads = static_cast<uint64_t>(query.size(0) * query.size(1));
  if (arguments[8].isNone()) return heads * kWarpThreads;
  const int64_t columns = arguments[1].toTensor().size(2);
  return rounded_step(heads * static_cast<uint64_t>(query.size(2) * columns));
}

// (query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, ...)
uint64_t step_packed_attention(const RandomGrid&, Arguments arguments) {
  if (arguments[7].toDouble() == 0) return 0;
  const Tensor& query = arguments[0].toTensor();
  const bool is_packed = arguments[3].isTensor() && arguments[3].toTensor().defined();
  const int64_t sequences = is_packed ? arguments[3].toTensor().numel() - 1 : query.size(0);
  return static_cast<uint64_t>(sequences * query.size(-2)) * kWarpThreads;
}

constexpr RandomOp kMasksRows[] = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", step_attention, nullptr},
    {"aten::_flash_attention_forward", step_packed_attention, nullptr},
    {"aten::native_dropout", step_dropout, dropout, /*makes_results=*/true},
    {"aten::bernoulli_.Tensor", step_bernoulli, bernoulli_in_place},
    {"aten::bernoulli.out", step_bernoulli, bernoulli_out},
    {"aten::rrelu_with_noise", step_rrelu, rrelu},
    {"aten::rrelu_with_noise.out", step_rrelu, rrelu},
    {"aten::rrelu_with_noise_", step_rrelu, rrelu_in_place},
};

}  // namespace

const c10::ArrayRef<RandomOp> kMaskOps = kMasksRows;

}  // namespace loom::glue::cuda_random
