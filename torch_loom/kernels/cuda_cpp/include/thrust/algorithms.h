// A subset of thrust over pointers and iterators: each call is one command of the stream, which a thread of
// the host computes; what returns a number waits for it.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cuda_runtime.h"
#include "loom_cuda/device.h"

namespace thrust {

// --- policies: where, on which stream ---

struct execution_policy {
  cudaStream_t stream = nullptr;
  bool is_host = false;
  execution_policy on(cudaStream_t other) const { return {other, is_host}; }
  template <typename Allocator>
  execution_policy operator()(Allocator&&) const {
    return *this;
  }
};
inline constexpr execution_policy device{}, host{nullptr, true}, seq{nullptr, true};
namespace cuda {
inline constexpr execution_policy par{}, par_nosync{};
}
namespace system {
namespace cuda = ::thrust::cuda;
}

// --- pointers of the device: plain ones ---

template <typename T>
class device_ptr {
 public:
  using value_type = std::remove_cv_t<T>;
  using difference_type = ptrdiff_t;
  using pointer = T*;
  using reference = T&;
  using iterator_category = std::random_access_iterator_tag;
  device_ptr() = default;
  explicit device_ptr(T* address) : address_(address) {}
  T* get() const { return address_; }
  T& operator*() const { return *address_; }
  T& operator[](ptrdiff_t i) const { return address_[i]; }
  device_ptr operator+(ptrdiff_t n) const { return device_ptr(address_ + n); }
  device_ptr operator-(ptrdiff_t n) const { return device_ptr(address_ - n); }
  ptrdiff_t operator-(device_ptr other) const { return address_ - other.address_; }
  device_ptr& operator++() { return ++address_, *this; }
  device_ptr& operator--() { return --address_, *this; }
  device_ptr operator++(int) { return device_ptr(address_++); }
  device_ptr& operator+=(ptrdiff_t n) { return address_ += n, *this; }
  bool operator==(device_ptr other) const { return address_ == other.address_; }
  bool operator!=(device_ptr other) const { return address_ != other.address_; }
  bool operator<(device_ptr other) const { return address_ < other.address_; }

 private:
  T* address_ = nullptr;
};
template <typename T>
inline device_ptr<T> device_pointer_cast(T* address) {
  return device_ptr<T>(address);
}
template <typename T>
inline device_ptr<T> device_pointer_cast(device_ptr<T> address) {
  return address;
}
template <typename T>
inline T* raw_pointer_cast(T* address) {
  return address;
}
template <typename T>
inline T* raw_pointer_cast(device_ptr<T> address) {
  return address.get();
}

namespace loom_detail {

template <typename Iterator>
inline auto bare(Iterator iterator) {
  return iterator;
}
template <typename T>
inline T* bare(device_ptr<T> pointer) {
  return pointer.get();
}
template <typename Iterator>
using Value = std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<Iterator>())>>;

template <typename F, typename... A>
inline void submit(const char* name, const execution_policy& policy, F body, A... arguments) {
  if (policy.is_host) return body(arguments...);
  loom_cuda::launch(
      name, "", loom_cuda::Configuration(1, 1, 0, policy.stream),
      [body](auto... given) {
        const loom_cuda::Unchecked own_memory;
        body(given...);
      },
      arguments...);
}

// A number that a command computes.
template <typename T, typename F, typename... A>
inline T ask(const char* name, const execution_policy& policy, F body, A... arguments) {
  T result{};
  submit(name, policy, [body, at = &result](auto... given) { *at = body(given...); }, arguments...);
  if (!policy.is_host) cudaStreamSynchronize(policy.stream);
  return result;
}

}  // namespace loom_detail

// Each has a form with a policy and one without.
#define LOOM_THRUST_FORMS(name)                                                                     \
  template <typename First, typename... Rest,                                                       \
            typename = std::enable_if_t<!std::is_base_of_v<execution_policy, std::decay_t<First>>>> \
  inline auto name(First first, Rest... rest) {                                                     \
    return ::thrust::name(device, first, rest...);                                                  \
  }

template <typename I, typename F>
inline I for_each(const execution_policy& policy, I first, I last, F f) {
  loom_detail::submit(
      "thrust::for_each", policy, [](auto a, auto b, F f) { std::for_each(a, b, f); },
      loom_detail::bare(first), loom_detail::bare(last), f);
  return last;
}
LOOM_THRUST_FORMS(for_each)
template <typename I, typename N, typename F>
inline I for_each_n(const execution_policy& policy, I first, N n, F f) {
  return for_each(policy, first, first + n, f);
}
LOOM_THRUST_FORMS(for_each_n)
template <typename I, typename O, typename F>
inline O transform(const execution_policy& policy, I first, I last, O out, F f) {
  loom_detail::submit(
      "thrust::transform", policy, [](auto a, auto b, auto o, F f) { std::transform(a, b, o, f); },
      loom_detail::bare(first), loom_detail::bare(last), loom_detail::bare(out), f);
  return out + (last - first);
}
template <typename I, typename J, typename O, typename F>
inline O transform(const execution_policy& policy, I first, I last, J second, O out, F f) {
  loom_detail::submit(
      "thrust::transform", policy, [](auto a, auto b, auto c, auto o, F f) { std::transform(a, b, c, o, f); },
      loom_detail::bare(first), loom_detail::bare(last), loom_detail::bare(second), loom_detail::bare(out),
      f);
  return out + (last - first);
}
LOOM_THRUST_FORMS(transform)
template <typename I, typename T>
inline void fill(const execution_policy& policy, I first, I last, T value) {
  loom_detail::submit(
      "thrust::fill", policy, [](auto a, auto b, T value) { std::fill(a, b, value); },
      loom_detail::bare(first), loom_detail::bare(last), value);
}
LOOM_THRUST_FORMS(fill)
template <typename I, typename T = loom_detail::Value<I>>
inline void sequence(const execution_policy& policy, I first, I last, T value = T()) {
  loom_detail::submit(
      "thrust::sequence", policy, [](auto a, auto b, T value) { std::iota(a, b, value); },
      loom_detail::bare(first), loom_detail::bare(last), value);
}
LOOM_THRUST_FORMS(sequence)
template <typename I, typename O>
inline O copy(const execution_policy& policy, I first, I last, O out) {
  loom_detail::submit(
      "thrust::copy", policy, [](auto a, auto b, auto o) { std::copy(a, b, o); }, loom_detail::bare(first),
      loom_detail::bare(last), loom_detail::bare(out));
  return out + (last - first);
}
LOOM_THRUST_FORMS(copy)
template <typename I, typename Less = std::less<>>
inline void sort(const execution_policy& policy, I first, I last, Less less = {}) {
  loom_detail::submit(
      "thrust::sort", policy, [](auto a, auto b, Less less) { std::stable_sort(a, b, less); },
      loom_detail::bare(first), loom_detail::bare(last), less);
}
LOOM_THRUST_FORMS(sort)
template <typename K, typename V, typename Less = std::less<>>
inline void sort_by_key(const execution_policy& policy, K first, K last, V values, Less less = {}) {
  loom_detail::submit(
      "thrust::sort_by_key", policy,
      [](auto a, auto b, auto v, Less less) {
        const auto n = static_cast<size_t>(b - a);
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [=](size_t i, size_t j) { return less(a[i], a[j]); });
        const std::vector<loom_detail::Value<K>> keys(a, b);
        const std::vector<loom_detail::Value<V>> old(v, v + n);
        for (size_t i = 0; i < n; ++i) a[i] = keys[order[i]], v[i] = old[order[i]];
      },
      loom_detail::bare(first), loom_detail::bare(last), loom_detail::bare(values), less);
}
LOOM_THRUST_FORMS(sort_by_key)
template <typename I, typename T = loom_detail::Value<I>, typename Op = std::plus<>>
inline T reduce(const execution_policy& policy, I first, I last, T initial = T(), Op op = {}) {
  return loom_detail::ask<T>(
      "thrust::reduce", policy,
      [](auto a, auto b, T value, Op op) { return std::accumulate(a, b, value, op); },
      loom_detail::bare(first), loom_detail::bare(last), initial, op);
}
LOOM_THRUST_FORMS(reduce)
template <typename I, typename F, typename T, typename Op>
inline T transform_reduce(const execution_policy& policy, I first, I last, F f, T initial, Op op) {
  return loom_detail::ask<T>(
      "thrust::transform_reduce", policy,
      [](auto a, auto b, F f, T value, Op op) {
        for (; a != b; ++a) value = op(value, f(*a));
        return value;
      },
      loom_detail::bare(first), loom_detail::bare(last), f, initial, op);
}
LOOM_THRUST_FORMS(transform_reduce)
template <typename I, typename P>
inline ptrdiff_t count_if(const execution_policy& policy, I first, I last, P p) {
  return loom_detail::ask<ptrdiff_t>(
      "thrust::count_if", policy, [](auto a, auto b, P p) { return std::count_if(a, b, p); },
      loom_detail::bare(first), loom_detail::bare(last), p);
}
LOOM_THRUST_FORMS(count_if)
template <typename I, typename O, typename Op = std::plus<>>
inline O inclusive_scan(const execution_policy& policy, I first, I last, O out, Op op = {}) {
  loom_detail::submit(
      "thrust::inclusive_scan", policy, [](auto a, auto b, auto o, Op op) { std::partial_sum(a, b, o, op); },
      loom_detail::bare(first), loom_detail::bare(last), loom_detail::bare(out), op);
  return out + (last - first);
}
LOOM_THRUST_FORMS(inclusive_scan)
template <typename I, typename O, typename T = loom_detail::Value<I>, typename Op = std::plus<>>
inline O exclusive_scan(const execution_policy& policy, I first, I last, O out, T initial = T(), Op op = {}) {
  loom_detail::submit(
      "thrust::exclusive_scan", policy,
      [](auto a, auto b, auto o, T value, Op op) { std::exclusive_scan(a, b, o, value, op); },
      loom_detail::bare(first), loom_detail::bare(last), loom_detail::bare(out), initial, op);
  return out + (last - first);
}
LOOM_THRUST_FORMS(exclusive_scan)
#undef LOOM_THRUST_FORMS

template <typename T = void>
using plus = std::plus<T>;
template <typename T = void>
using minus = std::minus<T>;
template <typename T = void>
using multiplies = std::multiplies<T>;
template <typename T = void>
using less = std::less<T>;
template <typename T = void>
using greater = std::greater<T>;
template <typename T = void>
using negate = std::negate<T>;
template <typename T>
struct maximum {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <typename T>
struct minimum {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};

}  // namespace thrust
