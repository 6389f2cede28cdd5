// Vectors in memory of the host and of the device: the same class over two kinds of memory.
#pragma once

#include <initializer_list>
#include <new>
#include <vector>

#include "thrust/iterator/reverse_iterator.h"
#include "thrust/memory.h"
#include "thrust/reducing.h"
#include "thrust/transforming.h"

namespace thrust {
namespace loom_detail {

template <typename T>
struct HostMemory {
  using pointer = T*;
  using reference = T&;
  using const_reference = const T&;
  using const_pointer = const T*;
  static pointer allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  static void release(pointer memory) { ::operator delete(memory, std::align_val_t(64)); }
};
template <typename T>
struct DeviceMemory {
  using pointer = device_ptr<T>;
  using reference = device_reference<T>;
  using const_reference = device_reference<const T>;
  using const_pointer = device_ptr<const T>;
  static pointer allocate(size_t n) { return device_malloc<T>(n); }
  static void release(pointer memory) { cudaFree(memory.get()); }
};

template <typename T, typename Memory>
class Vector {
 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using pointer = typename Memory::pointer;
  using const_pointer = typename Memory::const_pointer;
  using reference = typename Memory::reference;
  using const_reference = typename Memory::const_reference;
  using iterator = pointer;
  using const_iterator = const_pointer;
  using reverse_iterator = ::thrust::reverse_iterator<iterator>;
  using const_reverse_iterator = ::thrust::reverse_iterator<const_iterator>;

  Vector() = default;
  explicit Vector(size_t n) { resize(n); }
  Vector(size_t n, const T& value) { resize(n, value); }
  template <typename I>
    requires(std::input_or_output_iterator<I> || requires { I::kSystem; })
  Vector(I first, I last) {
    assign(first, last);
  }
  Vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  Vector(const Vector& other) { assign(other.begin(), other.end()); }
  Vector(Vector&& other) noexcept { swap(other); }
  template <typename U, typename Other>
  Vector(const Vector<U, Other>& other) {
    assign(other.begin(), other.end());
  }
  template <typename U, typename A>
  Vector(const std::vector<U, A>& other) {
    assign(other.begin(), other.end());
  }
  ~Vector() {
    clear();
    if (capacity_ != 0) Memory::release(first_);
  }
  Vector& operator=(const Vector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Vector& operator=(Vector&& other) noexcept { return swap(other), *this; }
  template <typename U, typename Other>
  Vector& operator=(const Vector<U, Other>& other) {
    return assign(other.begin(), other.end()), *this;
  }
  template <typename U, typename A>
  Vector& operator=(const std::vector<U, A>& other) {
    return assign(other.begin(), other.end()), *this;
  }
  void swap(Vector& other) {
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  friend void swap(Vector& a, Vector& b) { a.swap(b); }

  template <typename I>
    requires(!std::is_arithmetic_v<I>)
  void assign(I first, I last) {
    const auto n = static_cast<size_t>(std::distance(first, last));
    clear();
    grow(n);
    construct(n, T());
    if (n != 0) ::thrust::copy(first, last, begin());
  }
  void assign(size_t n, const T& value) {
    clear();
    resize(n, value);
  }

  size_t size() const { return size_; }
  size_t max_size() const { return PTRDIFF_MAX / sizeof(T); }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  void reserve(size_t n) {
    if (n > capacity_) move_to(n);
  }
  void shrink_to_fit() {
    if (size_ < capacity_) move_to(size_);
  }
  void resize(size_t n) { resize(n, T()); }
  void resize(size_t n, const T& value) {
    if (n < size_) destroy(n);
    grow(n);
    construct(n, value);
  }
  void clear() { destroy(0); }
  void push_back(const T& value) {
    const T copy = value;
    grow(size_ + 1);
    construct(size_ + 1, copy);
  }
  template <typename... A>
  void emplace_back(A&&... arguments) {
    push_back(T(std::forward<A>(arguments)...));
  }
  void pop_back() { destroy(size_ - 1); }
  iterator insert(const_iterator at, const T& value) { return insert(at, size_t{1}, value); }
  iterator insert(const_iterator at, size_t n, const T& value) {
    const iterator hole = open(at, n);
    if (n != 0) ::thrust::fill(hole, hole + n, value);
    return hole;
  }
  template <typename I>
    requires(!std::is_arithmetic_v<I>)
  iterator insert(const_iterator at, I first, I last) {
    const iterator hole = open(at, static_cast<size_t>(std::distance(first, last)));
    if (first != last) ::thrust::copy(first, last, hole);
    return hole;
  }
  iterator erase(const_iterator at) { return erase(at, at + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    const iterator to = begin() + (first - cbegin()), from = begin() + (last - cbegin());
    const size_t n = static_cast<size_t>(last - first);
    if (n != 0) ::thrust::copy(from, end(), to);
    destroy(size_ - n);
    return to;
  }

  reference operator[](size_t i) { return *(first_ + static_cast<ptrdiff_t>(i)); }
  const_reference operator[](size_t i) const { return *(cbegin() + static_cast<ptrdiff_t>(i)); }
  reference front() { return (*this)[0]; }
  const_reference front() const { return (*this)[0]; }
  reference back() { return (*this)[size_ - 1]; }
  const_reference back() const { return (*this)[size_ - 1]; }
  pointer data() { return first_; }
  const_pointer data() const { return first_; }
  iterator begin() { return first_; }
  const_iterator begin() const { return first_; }
  const_iterator cbegin() const { return first_; }
  iterator end() { return first_ + static_cast<ptrdiff_t>(size_); }
  const_iterator end() const { return cbegin() + static_cast<ptrdiff_t>(size_); }
  const_iterator cend() const { return end(); }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }

 private:
  void grow(size_t n) {
    if (n > capacity_) move_to(n > 2 * capacity_ ? n : 2 * capacity_);
  }
  void move_to(size_t capacity) {
    Vector other;
    if (capacity != 0) other.first_ = Memory::allocate(capacity);
    other.capacity_ = capacity;
    if (size_ != 0) other.construct(size_, T());
    if (size_ != 0) ::thrust::copy(cbegin(), cend(), other.begin());
    swap(other);
  }
  // Values up to the n-th.
  void construct(size_t n, const T& value) {
    if (n > size_) {
      loom_detail::submit(
          "thrust::uninitialized_fill", policy_of<pointer>(),
          [](T* at, size_t count, const T& value) {
            for (size_t i = 0; i < count; ++i) new (at + i) T(value);
          },
          end(), n - size_, value);
    }
    if (n > size_) size_ = n;
  }
  void destroy(size_t n) {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      if (n < size_) {
        loom_detail::submit(
            "thrust::destroy", policy_of<pointer>(),
            [](T* at, size_t count) {
              for (size_t i = 0; i < count; ++i) at[i].~T();
            },
            begin() + static_cast<ptrdiff_t>(n), size_ - n);
      }
    }
    size_ = n;
  }
  // Room for n values, whose contents do not matter.
  iterator open(const_iterator at, size_t n) {
    const ptrdiff_t place = at - cbegin(), behind = static_cast<ptrdiff_t>(size_) - place;
    resize(size_ + n);
    loom_detail::submit(
        "thrust::move_backward", policy_of<pointer>(),
        [](T* from, ptrdiff_t count, size_t n) {
          for (ptrdiff_t i = count - 1; i >= 0; --i) from[i + static_cast<ptrdiff_t>(n)] = from[i];
        },
        begin() + place, behind, n);
    return begin() + place;
  }

  pointer first_{};
  size_t size_ = 0, capacity_ = 0;
};

template <typename T, typename M, typename U, typename N>
inline bool operator==(const Vector<T, M>& a, const Vector<U, N>& b) {
  return a.size() == b.size() && ::thrust::equal(a.begin(), a.end(), b.begin());
}
template <typename T, typename M, typename U, typename A>
inline bool operator==(const Vector<T, M>& a, const std::vector<U, A>& b) {
  return a.size() == b.size() && ::thrust::equal(a.begin(), a.end(), b.begin());
}

}  // namespace loom_detail

template <typename T, typename = use_default>
class host_vector : public loom_detail::Vector<T, loom_detail::HostMemory<T>> {
 public:
  using loom_detail::Vector<T, loom_detail::HostMemory<T>>::Vector;
  using loom_detail::Vector<T, loom_detail::HostMemory<T>>::operator=;
};
template <typename T, typename = use_default>
class device_vector : public loom_detail::Vector<T, loom_detail::DeviceMemory<T>> {
 public:
  using loom_detail::Vector<T, loom_detail::DeviceMemory<T>>::Vector;
  using loom_detail::Vector<T, loom_detail::DeviceMemory<T>>::operator=;
};

}  // namespace thrust
