// Pointers and references to memory of the device. In a kernel they are plain ones; the host's code that
// reads or writes through them copies, behind what the default stream has to do.
#pragma once

#include "loom_cuda/device.h"
#include "thrust/iterator/iterator_traits.h"
#include "thrust/system_error.h"

namespace thrust {

template <typename T>
class device_ptr;

template <typename T>
class device_reference {
 public:
  using value_type = std::remove_cv_t<T>;
  explicit device_reference(T* address) : address_(address) {}
  device_reference(const device_reference&) = default;
  template <typename U>
    requires std::is_same_v<std::remove_cv_t<U>, value_type>
  device_reference(const device_reference<U>& other) : address_((&other).get()) {}
  device_ptr<T> operator&() const { return device_ptr<T>(address_); }

  operator value_type() const {
    if (loom_cuda_in_kernel()) return *address_;
    alignas(value_type) unsigned char bytes[sizeof(value_type)];
    loom_detail::check(::cudaMemcpy(bytes, address_, sizeof(value_type), cudaMemcpyDefault),
                       "device_reference");
    return *reinterpret_cast<value_type*>(bytes);
  }
  const device_reference& operator=(const value_type& value) const {
    if (loom_cuda_in_kernel()) {
      *address_ = value;
    } else {
      loom_detail::check(
          ::cudaMemcpy(const_cast<value_type*>(address_), &value, sizeof(value_type), cudaMemcpyDefault),
          "device_reference");
    }
    return *this;
  }
  const device_reference& operator=(const device_reference& other) const {
    return *this = static_cast<value_type>(other);
  }
  template <typename U>
  const device_reference& operator=(const device_reference<U>& other) const {
    return *this = static_cast<value_type>(static_cast<U>(other));
  }
#define LOOM_THRUST_CHANGE(op)                                                       \
  template <typename U>                                                              \
  const device_reference& operator op## = (const U& value) const {                   \
    return *this = static_cast<value_type>(static_cast<value_type>(*this) op value); \
  }
  LOOM_THRUST_CHANGE(+)
  LOOM_THRUST_CHANGE(-)
  LOOM_THRUST_CHANGE(*)
  LOOM_THRUST_CHANGE(/)
  LOOM_THRUST_CHANGE(%)
  LOOM_THRUST_CHANGE(&)
  LOOM_THRUST_CHANGE(|)
  LOOM_THRUST_CHANGE(^)
  LOOM_THRUST_CHANGE(<<)
  LOOM_THRUST_CHANGE(>>)
#undef LOOM_THRUST_CHANGE
  const device_reference& operator++() const { return *this += 1; }
  const device_reference& operator--() const { return *this -= 1; }
  value_type operator++(int) const {
    const value_type old = *this;
    return ++*this, old;
  }
  value_type operator--(int) const {
    const value_type old = *this;
    return --*this, old;
  }
  friend void swap(device_reference a, device_reference b) {
    const value_type first = a;
    a = static_cast<value_type>(b);
    b = first;
  }

 private:
  T* address_;
};

template <typename T>
class device_ptr : public loom_detail::Facade<device_ptr<T>, std::remove_cv_t<T>, device_reference<T>> {
 public:
  static constexpr auto kSystem = loom_detail::System::device;
  using element_type = T;
  device_ptr() = default;
  device_ptr(std::nullptr_t) {}
  explicit device_ptr(T* address) : address_(address) {}
  template <typename U>
    requires std::convertible_to<U*, T*>
  device_ptr(const device_ptr<U>& other) : address_(other.get()) {}
  T* get() const { return address_; }
  T* bare() const { return address_; }
  explicit operator bool() const { return address_ != nullptr; }

  device_reference<T> at() const { return device_reference<T>(address_); }
  void by_steps(ptrdiff_t n) { address_ += n; }
  ptrdiff_t steps_from(const device_ptr& other) const { return address_ - other.address_; }

 private:
  T* address_ = nullptr;
};
template <>
class device_ptr<void> {
 public:
  device_ptr() = default;
  explicit device_ptr(void* address) : address_(address) {}
  template <typename U>
  device_ptr(const device_ptr<U>& other) : address_(other.get()) {}
  template <typename U>
  explicit operator device_ptr<U>() const {
    return device_ptr<U>(static_cast<U*>(address_));
  }
  void* get() const { return address_; }

 private:
  void* address_ = nullptr;
};
template <typename T>
using device_pointer = device_ptr<T>;

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
template <typename T>
inline T& raw_reference_cast(T& place) {
  return place;
}
template <typename T>
inline T& raw_reference_cast(device_reference<T> place) {
  return *(&place).get();
}

inline device_ptr<void> device_malloc(size_t bytes) {
  void* address = nullptr;
  if (bytes != 0) loom_detail::check(::cudaMalloc(&address, bytes), "device_malloc");
  return device_ptr<void>(address);
}
template <typename T>
inline device_ptr<T> device_malloc(size_t n) {
  return device_ptr<T>(static_cast<T*>(thrust::device_malloc(n * sizeof(T)).get()));
}
template <typename T>
inline void device_free(device_ptr<T> memory) {
  loom_detail::check(::cudaFree(const_cast<void*>(static_cast<const void*>(memory.get()))), "device_free");
}

// Vectors take these as they take the standard ones; all memory is cudaMalloc's.
template <typename T>
struct device_allocator {
  using value_type = T;
  using pointer = device_ptr<T>;
  device_allocator() = default;
  template <typename U>
  device_allocator(const device_allocator<U>&) {}
  pointer allocate(size_t n) { return thrust::device_malloc<T>(n); }
  void deallocate(pointer memory, size_t) { thrust::device_free(memory); }
  bool operator==(const device_allocator&) const { return true; }
};
template <typename T>
using device_malloc_allocator = device_allocator<T>;

}  // namespace thrust
