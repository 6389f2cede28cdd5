// Distributions whose threads draw as many numbers as they need: poisson, gamma, binomial, multinomial.
#include <ATen/Dispatch.h>
#include <ATen/native/Distributions.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>

#include <cmath>
#include <functional>
#include <limits>

#include "torch/random/nullary.h"
#include "torch/random/ops.h"
#include "torch/random/scan.h"
#include "torch/random/thread_state.h"

namespace loom::glue::cuda_random {

namespace {

using at::Tensor;

// cuRAND's rejection method for rates from 64 to 4000: an approximation of the distribution function and its
// inverse, with the constants of its header.
struct RateApproximation {
  explicit RateApproximation(float rate)
      : rate(rate),
        alpha(1.43248035075540910F / std::sqrt(rate - 0.12400979329415655F) + 0.00025361074907033F),
        beta(0.21096734870196546F / std::sqrt(rate - 1.97381164089999420F) + 0.94201734077887530F) {}

  float share_above(float x) const {
    const float t = 1.0F + std::exp(alpha * (rate - x) - beta);
    return 1.0F / (t * t);
  }
  float place_of(float share) const {
    return rate - (beta + std::log(1.0F / std::sqrt(share) - 1.0F)) / alpha;
  }

  const float rate, alpha, beta;
};

uint32_t draw_poisson(ThreadState& state, double rate) {
  if (rate < 64) {
    uint32_t count = 0;
    float product = std::exp(static_cast<float>(rate));
    do {
      ++count;
      product *= state.uniform();
    } while (static_cast<double>(product) > 1.0);
    return count - 1;
  }
  if (rate > 4000) return static_cast<uint32_t>(std::sqrt(rate) * state.normal_double() + rate + 0.5);
  const RateApproximation approximation(static_cast<float>(rate));
  const float log_rate = std::log(approximation.rate);
  while (true) {
    const float x = std::floor(approximation.place_of(state.uniform()));
    const float drawn = state.uniform();
    const float bound = (approximation.share_above(x + 1.0F) - approximation.share_above(x)) * 1.3F;
    const float exact = std::exp(-approximation.rate + x * log_rate -
                                 static_cast<float>(std::lgamma(static_cast<double>(1.0F + x))));
    if (drawn * bound < exact && bound >= 1e-20F) return static_cast<uint32_t>(x);
  }
}

// One thread an element, in the order of indices.
template <typename Sample>
void for_elements(int64_t count, uint64_t seed, uint64_t offset, const Sample& sample) {
  at::parallel_for(0, count, 512, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ThreadState state(seed, static_cast<uint64_t>(i), offset);
      sample(i, state);
    }
  });
}

constexpr uint64_t kPoissonStep = 20, kGammaStep = 10, kBinomialStep = 42;

Results poisson(Arguments arguments, Draws& draws) {
  const Tensor rates = arguments[0].toTensor().contiguous();
  Tensor result = at::empty(rates.sizes(), rates.options());
  const uint64_t offset = draws.take(kPoissonStep);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rates.scalar_type(), "poisson_cuda", [&] {
    const auto* const rate = rates.const_data_ptr<scalar_t>();
    auto* const out = result.mutable_data_ptr<scalar_t>();
    for_elements(rates.numel(), draws.seed, offset, [&](int64_t i, ThreadState& state) {
      TORCH_CHECK(rate[i] >= 0, "invalid Poisson rate, expected rate to be non-negative");
      out[i] = static_cast<scalar_t>(draw_poisson(state, static_cast<double>(rate[i])));
    });
  });
  return {result};
}

Tensor gamma_of(const Tensor& alphas, Draws& draws) {
  const Tensor given = alphas.contiguous();
  Tensor result = at::empty(given.sizes(), given.options());
  const uint64_t offset = draws.take(kGammaStep);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, given.scalar_type(), "gamma_cuda", [&] {
    using Number = Wide<scalar_t>;
    const auto* const alpha = given.const_data_ptr<scalar_t>();
    auto* const out = result.mutable_data_ptr<scalar_t>();
    for_elements(given.numel(), draws.seed, offset, [&](int64_t i, ThreadState& state) {
      const auto uniform = [&state] { return state.uniform(); };
      const auto normal = [&state] { return state.normal(); };
      BaseSampler<Number, decltype(uniform)> uniforms(uniform);
      BaseSampler<Number, decltype(normal)> normals(normal);
      const auto sample =
          sample_gamma<scalar_t, Number, decltype(uniform), decltype(normal)>(alpha[i], uniforms, normals);
      out[i] = std::max(std::numeric_limits<scalar_t>::min(), sample);
    });
  });
  return result;
}

Results gamma(Arguments arguments, Draws& draws) { return {gamma_of(arguments[0].toTensor(), draws)}; }

Results dirichlet(Arguments arguments, Draws& draws) {
  const Tensor gammas = gamma_of(arguments[0].toTensor(), draws);
  Tensor result = at::empty_like(gammas);
  const Tensor sums = gammas.sum(-1, true).expand(gammas.sizes());
  at::div_out(result, gammas, sums);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gammas.scalar_type(), "dirichlet", [&] {
    result.clamp_(static_cast<double>(std::numeric_limits<scalar_t>::min()),
                  static_cast<double>(static_cast<scalar_t>(1 - std::numeric_limits<scalar_t>::epsilon())));
  });
  return {result};
}

// A thread draws one after another for eight elements, which lie as many apart as a block has threads.
Results binomial(Arguments arguments, Draws& draws) {
  constexpr int64_t kThreadsOfBlock = 128, kPerThread = 8;
  const Tensor counts = arguments[0].toTensor().contiguous();
  const Tensor shares = arguments[1].toTensor().expand(counts.sizes()).contiguous();
  Tensor result = at::empty(counts.sizes(), counts.options());
  const uint64_t offset = draws.take(kBinomialStep);
  const int64_t total = counts.numel(), per_block = kThreadsOfBlock * kPerThread;
  const int64_t blocks = (total + per_block - 1) / per_block;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, counts.scalar_type(), "binomial_cuda", [&] {
    using Number = Wide<scalar_t>;
    const auto* const count = counts.const_data_ptr<scalar_t>();
    const auto* const share = shares.const_data_ptr<scalar_t>();
    auto* const out = result.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, blocks * kThreadsOfBlock, 128, [&](int64_t begin, int64_t end) {
      for (int64_t thread = begin; thread < end; ++thread) {
        ThreadState state(draws.seed, static_cast<uint64_t>(thread), offset);
        // 24 bits, from 0 and below 1.
        const auto uniform = [&state] { return static_cast<float>(state.word() & 0xFFFFFF) * 0x1p-24F; };
        BaseSampler<Number, decltype(uniform)> uniforms(uniform);
        int64_t place = thread / kThreadsOfBlock * per_block + thread % kThreadsOfBlock;
        for (int64_t i = 0; i < kPerThread && place < total; ++i, place += kThreadsOfBlock) {
          out[place] = static_cast<scalar_t>(
              sample_binomial<scalar_t, Number, decltype(uniform)>(count[place], share[place], uniforms));
        }
      }
    });
  });
  return {result};
}

template <uint64_t kStep>
uint64_t step_once(const RandomGrid&, Arguments) {
  return rounded_step(kStep);
}

// A block's sum of a row: each thread adds every n-th number, then pairs of threads are added.
template <typename T>
T block_sum(const T* row, int64_t columns) {
  constexpr int64_t kWarp = 32, kMostThreads = 1024;
  const int64_t threads = std::min(kMostThreads, (columns + kWarp - 1) / kWarp * kWarp);
  std::vector<T> sums(static_cast<size_t>(threads), T(0));
  for (int64_t column = 0; column < columns; ++column) {
    T& sum = sums[static_cast<size_t>(column % threads)];
    sum = sum + row[column];
  }
  const auto add_warp = [&](size_t first) {
    for (size_t step = kWarp / 2; step > 0; step /= 2) {
      for (size_t lane = 0; lane < step; ++lane)
        sums[first + lane] = sums[first + lane] + sums[first + lane + step];
    }
  };
  std::vector<T> of_warps(kWarp, T(0));
  for (int64_t warp = 0; warp < threads / kWarp; ++warp) {
    add_warp(static_cast<size_t>(warp * kWarp));
    of_warps[static_cast<size_t>(warp)] = sums[static_cast<size_t>(warp * kWarp)];
  }
  sums = of_warps;
  add_warp(0);
  return sums[0];
}

// Where a number falls among sums that grow; never at a share of zero.
template <typename T>
int64_t bucket_of(const T* sums, const T* shares, int64_t count, T number) {
  int64_t place = std::lower_bound(sums, sums + count, number) - sums;
  if (place == count) place = count - 1;
  while (place >= 1 && shares[place] == 0) --place;
  return place;
}

constexpr int64_t kSampleThreads = 128, kMostRows = 65535;

// Divides each row by its sum.
template <typename T>
void normalize_rows(T* shares, int64_t rows, int64_t columns) {
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (T* own = shares + begin * columns; own < shares + end * columns; own += columns) {
      for (int64_t i = 0; i < columns; ++i) {
        TORCH_CHECK(own[i] >= 0 && std::isfinite(static_cast<double>(own[i])),
                    "probability tensor contains either `inf`, `nan` or element < 0");
      }
      const T sum = block_sum(own, columns);
      TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
      for (int64_t i = 0; i < columns; ++i) own[i] = own[i] / sum;
    }
  });
}

// One row alone is not added in an order that can be known: its sums are rounded once.
template <typename T>
Tensor running_sums(const Tensor& shares) {
  if (shares.size(0) > 1) return scanned_rows(shares, 1, 0.0, std::plus<>());
  Tensor sums = at::empty_like(shares);
  const T* const share = shares.const_data_ptr<T>();
  T* const sum = sums.mutable_data_ptr<T>();
  double running = 0;
  for (int64_t i = 0; i < shares.numel(); ++i)
    sum[i] = static_cast<T>(running += static_cast<double>(share[i]));
  return sums;
}

Tensor with_replacement(const Tensor& weights, int64_t samples, Draws& draws) {
  Tensor shares = weights.dim() == 1 ? weights.unsqueeze(0).clone(at::MemoryFormat::Contiguous)
                                     : weights.clone(at::MemoryFormat::Contiguous);
  const int64_t rows = shares.size(0), columns = shares.size(1);
  Tensor result = at::empty({rows, samples}, shares.options().dtype(at::kLong));
  const int64_t grid_rows = std::min(rows, kMostRows), width = (samples - 1) / kSampleThreads + 1;
  const uint64_t offset = draws.take(static_cast<uint64_t>((rows - 1) / grid_rows + 1) * kNumbersPerCall);
  auto* const out = result.mutable_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, shares.scalar_type(), "multinomial_kernel_cuda", [&] {
        auto* const share = shares.mutable_data_ptr<scalar_t>();
        normalize_rows(share, rows, columns);
        const Tensor sums = running_sums<scalar_t>(shares);
        const auto* const sum = sums.const_data_ptr<scalar_t>();
        at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            // The row of the grid has turn after turn of rows, and a thread a number for each.
            const uint64_t turn = static_cast<uint64_t>(row / grid_rows),
                           grid_row = static_cast<uint64_t>(row % grid_rows);
            for (int64_t sample = 0; sample < samples; ++sample) {
              const uint64_t thread =
                  grid_row * static_cast<uint64_t>(width * kSampleThreads) + static_cast<uint64_t>(sample);
              ThreadState state(draws.seed, thread, offset + turn * kNumbersPerCall);
              out[row * samples + sample] = bucket_of(sum + row * columns, share + row * columns, columns,
                                                      static_cast<scalar_t>(state.uniform()));
            }
          }
        });
      });
  return weights.dim() == 1 ? result.squeeze(0) : result;
}

// Of exponential numbers q, the largest of weight / q: samples without replacement.
Tensor without_replacement(const Tensor& weights, int64_t samples, Draws& draws) {
  TORCH_CHECK(weights.max().item<double>() < INFINITY && weights.min().item<double>() >= 0,
              "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(!weights.sum(-1).eq(0).any().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  Tensor drawn = at::empty_like(weights);
  fill_exponential(drawn, draws);
  at::div_out(drawn, weights, drawn);
  if (samples == 1) return at::argmax(drawn, -1, /*keepdim=*/true);
  return std::get<1>(at::topk(drawn, samples));
}

bool has_draws(Arguments arguments) {
  const Tensor& weights = arguments[0].toTensor();
  return weights.numel() != 0 && arguments[1].toInt() > 0 && weights.dim() <= 2 &&
         weights.is_floating_point() && (arguments[2].toBool() || arguments[1].toInt() <= weights.size(-1));
}

Results multinomial(Arguments arguments, Draws& draws) {
  if (!has_draws(arguments)) return {};  // the engine's kernel says what is wrong
  const Tensor& weights = arguments[0].toTensor();
  const int64_t samples = arguments[1].toInt();
  if (arguments[2].toBool() && samples > 1) return {with_replacement(weights, samples, draws)};
  return {without_replacement(weights, samples, draws)};
}

uint64_t step_multinomial(const RandomGrid& grid, Arguments arguments) {
  if (!has_draws(arguments)) return 0;
  const Tensor& weights = arguments[0].toTensor();
  if (arguments[2].toBool() && arguments[1].toInt() > 1) {
    const int64_t rows = weights.dim() == 1 ? 1 : weights.size(0);
    return static_cast<uint64_t>((rows - 1) / std::min(rows, kMostRows) + 1) * kNumbersPerCall;
  }
  return policy_of(grid, weights.numel(), weights.scalar_type() == at::kDouble ? 2 : 4).step;
}

constexpr RandomOp kSamplersRows[] = {
    {"aten::poisson", step_once<kPoissonStep>, poisson},
    {"aten::_standard_gamma", step_once<kGammaStep>, gamma},
    {"aten::_sample_dirichlet", step_once<kGammaStep>, dirichlet},
    {"aten::binomial", step_once<kBinomialStep>, binomial},
    {"aten::multinomial", step_multinomial, multinomial},
    {"aten::multinomial.out", step_multinomial, multinomial},
};

}  // namespace

const c10::ArrayRef<RandomOp> kSamplerOps = kSamplersRows;

}  // namespace loom::glue::cuda_random
