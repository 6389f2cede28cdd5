// Engines are the host's; distributions are thrust's own, so that a seed gives the numbers that it gives
// there.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "loom_cuda/device.h"

namespace thrust {
namespace random {

using std::discard_block_engine;
using std::linear_congruential_engine;
using std::minstd_rand;
using std::minstd_rand0;
using std::ranlux24;
using std::ranlux24_base;
using std::ranlux48;
using std::ranlux48_base;
using std::subtract_with_carry_engine;
using default_random_engine = minstd_rand;

template <typename T = double>
class uniform_real_distribution {
 public:
  using result_type = T;
  using param_type = std::pair<T, T>;
  explicit uniform_real_distribution(T a = 0, T b = 1) : a_(a), b_(b) {}
  explicit uniform_real_distribution(const param_type& range) : a_(range.first), b_(range.second) {}
  void reset() {}
  template <typename Engine>
  T operator()(Engine& engine) {
    return (*this)(engine, param());
  }
  template <typename Engine>
  T operator()(Engine& engine, const param_type& range) {
    const T share =
        static_cast<T>(engine() - Engine::min()) / (T(1) + static_cast<T>(Engine::max() - Engine::min()));
    return share * (range.second - range.first) + range.first;
  }
  T a() const { return a_; }
  T b() const { return b_; }
  param_type param() const { return {a_, b_}; }
  T(min)() const { return a_; }
  T(max)() const { return b_; }

 private:
  T a_, b_;
};

template <typename T = int>
class uniform_int_distribution {
 public:
  using result_type = T;
  using param_type = std::pair<T, T>;
  explicit uniform_int_distribution(T a = 0, T b = std::numeric_limits<T>::max()) : a_(a), b_(b) {}
  explicit uniform_int_distribution(const param_type& range) : a_(range.first), b_(range.second) {}
  void reset() {}
  template <typename Engine>
  T operator()(Engine& engine) {
    return (*this)(engine, param());
  }
  // Both ends count.
  template <typename Engine>
  T operator()(Engine& engine, const param_type& range) {
    const double low = static_cast<double>(range.first), high = static_cast<double>(range.second) + 1;
    return static_cast<T>(uniform_real_distribution<double>(low, high)(engine));
  }
  T a() const { return a_; }
  T b() const { return b_; }
  param_type param() const { return {a_, b_}; }
  T(min)() const { return a_; }
  T(max)() const { return b_; }

 private:
  T a_, b_;
};

template <typename T = double>
class normal_distribution {
 public:
  using result_type = T;
  using param_type = std::pair<T, T>;
  explicit normal_distribution(T mean = 0, T deviation = 1) : mean_(mean), deviation_(deviation) {}
  explicit normal_distribution(const param_type& given) : mean_(given.first), deviation_(given.second) {}
  void reset() {}
  template <typename Engine>
  T operator()(Engine& engine) {
    return (*this)(engine, param());
  }
  // By the inverse of the distribution's function: one number of the engine each.
  template <typename Engine>
  T operator()(Engine& engine, const param_type& given) {
    const auto span = Engine::max() - Engine::min();
    auto drawn = engine() - Engine::min();
    double side = -1.4142135623730951;
    if (drawn > span / 2) {
      drawn = span - drawn;
      side = -side;
    }
    const double share = (static_cast<double>(drawn) + 0.5) / static_cast<double>(span);
    return static_cast<T>(given.first + given.second * (side * ::erfcinv(2 * share)));
  }
  T mean() const { return mean_; }
  T stddev() const { return deviation_; }
  param_type param() const { return {mean_, deviation_}; }

 private:
  T mean_, deviation_;
};

}  // namespace random

using random::default_random_engine;
using random::minstd_rand;
using random::minstd_rand0;
using random::normal_distribution;
using random::ranlux24;
using random::ranlux48;
using random::uniform_int_distribution;
using random::uniform_real_distribution;

}  // namespace thrust
