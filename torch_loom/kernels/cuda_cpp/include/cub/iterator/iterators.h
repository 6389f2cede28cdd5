// What cub reads from and writes to instead of memory.
#pragma once

#include "cub/common.h"
#include "cuda_runtime.h"
#include "thrust/iterator/discard_iterator.h"
#include "thrust/iterator/transform_iterator.h"

namespace cub {

template <typename T, typename Offset = ptrdiff_t>
class CountingInputIterator : public ::thrust::loom_detail::Facade<CountingInputIterator<T, Offset>, T, T> {
 public:
  static constexpr auto kSystem = ::thrust::loom_detail::System::any;
  CountingInputIterator() = default;
  explicit CountingInputIterator(const T& start) : at_(start) {}
  T at() const { return at_; }
  void by_steps(ptrdiff_t n) { at_ = static_cast<T>(at_ + n); }
  ptrdiff_t steps_from(const CountingInputIterator& other) const {
    return static_cast<ptrdiff_t>(at_) - static_cast<ptrdiff_t>(other.at_);
  }

 private:
  T at_{};
};

template <typename T, typename Offset = ptrdiff_t>
class ConstantInputIterator : public ::thrust::loom_detail::Facade<ConstantInputIterator<T, Offset>, T, T> {
 public:
  static constexpr auto kSystem = ::thrust::loom_detail::System::any;
  explicit ConstantInputIterator(T value, Offset index = 0) : value_(value), index_(index) {}
  T at() const { return value_; }
  void by_steps(ptrdiff_t n) { index_ += n; }
  ptrdiff_t steps_from(const ConstantInputIterator& other) const { return index_ - other.index_; }

 private:
  T value_;
  ptrdiff_t index_;
};

template <typename T, typename F, typename I, typename Offset = ptrdiff_t>
class TransformInputIterator
    : public ::thrust::loom_detail::Facade<TransformInputIterator<T, F, I, Offset>, T, T> {
 public:
  static constexpr auto kSystem = ::thrust::loom_detail::system_of<I>();
  TransformInputIterator(I base, F f) : base_(base), f_(f) {}
  auto bare() const {
    auto below = ::thrust::loom_detail::bare(base_);
    return TransformInputIterator<T, F, decltype(below), Offset>(below, f_.get());
  }
  T at() const { return static_cast<T>(f_.get()(*base_)); }
  void by_steps(ptrdiff_t n) { base_ += n; }
  ptrdiff_t steps_from(const TransformInputIterator& other) const { return base_ - other.base_; }

 private:
  I base_;
  ::thrust::loom_detail::Held<F> f_;
};

// Pairs of a place and the value there.
template <typename I, typename Offset = ptrdiff_t, typename T = ::thrust::loom_detail::Value<I>>
class ArgIndexInputIterator
    : public ::thrust::loom_detail::Facade<ArgIndexInputIterator<I, Offset, T>, KeyValuePair<Offset, T>,
                                           KeyValuePair<Offset, T>> {
 public:
  static constexpr auto kSystem = ::thrust::loom_detail::system_of<I>();
  explicit ArgIndexInputIterator(I base, ptrdiff_t offset = 0) : base_(base), offset_(offset) {}
  auto bare() const {
    auto below = ::thrust::loom_detail::bare(base_);
    return ArgIndexInputIterator<decltype(below), Offset, T>(below, offset_);
  }
  KeyValuePair<Offset, T> at() const {
    return {static_cast<Offset>(offset_), static_cast<T>(base_[offset_])};
  }
  void by_steps(ptrdiff_t n) { offset_ += n; }
  ptrdiff_t steps_from(const ArgIndexInputIterator& other) const { return offset_ - other.offset_; }
  void normalize() {
    base_ += offset_;
    offset_ = 0;
  }

 private:
  I base_;
  ptrdiff_t offset_;
};

// Pointers; how they use caches does not matter here.
template <typename Own, typename T>
class PointerIterator : public ::thrust::loom_detail::Facade<Own, std::remove_cv_t<T>, T&> {
 public:
  static constexpr auto kSystem = ::thrust::loom_detail::System::device;
  explicit PointerIterator(T* address = nullptr) : address_(address) {}
  T* bare() const { return address_; }
  T& at() const { return *address_; }
  void by_steps(ptrdiff_t n) { address_ += n; }
  ptrdiff_t steps_from(const PointerIterator& other) const { return address_ - other.address_; }

 protected:
  T* address_;
};
template <CacheLoadModifier kModifier, typename T, typename Offset = ptrdiff_t>
class CacheModifiedInputIterator
    : public PointerIterator<CacheModifiedInputIterator<kModifier, T, Offset>, const T> {
  using PointerIterator<CacheModifiedInputIterator<kModifier, T, Offset>, const T>::PointerIterator;
};
template <CacheStoreModifier kModifier, typename T, typename Offset = ptrdiff_t>
class CacheModifiedOutputIterator
    : public PointerIterator<CacheModifiedOutputIterator<kModifier, T, Offset>, T> {
  using PointerIterator<CacheModifiedOutputIterator<kModifier, T, Offset>, T>::PointerIterator;
};
template <typename T, typename Offset = ptrdiff_t>
class TexObjInputIterator : public PointerIterator<TexObjInputIterator<T, Offset>, const T> {
 public:
  template <typename Q>
  cudaError_t BindTexture(Q* address, size_t = 0, size_t offset_bytes = 0) {
    this->address_ = reinterpret_cast<const T*>(reinterpret_cast<const char*>(address) + offset_bytes);
    return cudaSuccess;
  }
  cudaError_t UnbindTexture() { return cudaSuccess; }
};

template <typename Offset = ptrdiff_t>
class DiscardOutputIterator : public ::thrust::discard_iterator<Offset> {
 public:
  explicit DiscardOutputIterator(Offset offset = 0) : ::thrust::discard_iterator<Offset>(offset) {}
};

}  // namespace cub
