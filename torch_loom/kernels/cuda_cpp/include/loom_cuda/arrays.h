// cudaArray, which textures and surfaces read: rows of elements, without gaps, in memory of the device.
#pragma once

#include <mutex>
#include <new>
#include <type_traits>

#include "loom_cuda/runtime_api.h"

enum cudaChannelFormatKind {
  cudaChannelFormatKindSigned = 0,
  cudaChannelFormatKindUnsigned = 1,
  cudaChannelFormatKindFloat = 2,
  cudaChannelFormatKindNone = 3
};
// Bits of each channel.
struct cudaChannelFormatDesc {
  int x, y, z, w;
  enum cudaChannelFormatKind f;
};

#define cudaArrayDefault 0x00
#define cudaArrayLayered 0x01
#define cudaArraySurfaceLoadStore 0x02
#define cudaArrayCubemap 0x04
#define cudaArrayTextureGather 0x08

// Sizes are in elements, as they were asked for: 0 where the array has fewer dimensions. Layers, and faces of
// a cube, are its depth.
struct cudaArray {
  static constexpr unsigned kTag = 0x4C6F6F41;
  unsigned tag;
  unsigned flags;
  cudaChannelFormatDesc format;
  cudaExtent extent;
  size_t element_bytes;
  char* memory;

  size_t row_bytes() const { return extent.width * element_bytes; }
  size_t rows() const { return extent.height == 0 ? 1 : extent.height; }
  size_t planes() const { return extent.depth == 0 ? 1 : extent.depth; }
  size_t bytes() const { return row_bytes() * rows() * planes(); }
};
typedef struct cudaArray* cudaArray_t;
typedef const struct cudaArray* cudaArray_const_t;
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
typedef const struct cudaMipmappedArray* cudaMipmappedArray_const_t;

static inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                          enum cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}
static inline cudaChannelFormatDesc cudaCreateChannelDescHalf() {
  return {16, 0, 0, 0, cudaChannelFormatKindFloat};
}
static inline cudaChannelFormatDesc cudaCreateChannelDescHalf1() { return cudaCreateChannelDescHalf(); }
static inline cudaChannelFormatDesc cudaCreateChannelDescHalf2() {
  return {16, 16, 0, 0, cudaChannelFormatKindFloat};
}
static inline cudaChannelFormatDesc cudaCreateChannelDescHalf4() {
  return {16, 16, 16, 16, cudaChannelFormatKindFloat};
}

namespace loom_cuda {

// What a vector consists of; another type consists of itself.
template <typename T, typename = void>
struct NumberOf {
  using Type = T;
};
template <typename T>
struct NumberOf<T, std::void_t<decltype(T::x)>> {
  using Type = decltype(T::x);
};
template <typename T>
using Number = typename NumberOf<T>::Type;
template <typename T>
inline constexpr int kLanes = static_cast<int>(sizeof(T) / sizeof(Number<T>));

// One, two or four channels of 8, 16 or 32 bits, all alike; 0 otherwise.
static inline int channels(const cudaChannelFormatDesc& format) {
  const int bits[] = {format.x, format.y, format.z, format.w};
  int count = 0;
  while (count < 4 && bits[count] != 0) ++count;
  for (int i = 1; i < 4; ++i) {
    if (bits[i] != (i < count ? bits[0] : 0)) return 0;
  }
  const bool is_whole = format.f == cudaChannelFormatKindSigned || format.f == cudaChannelFormatKindUnsigned;
  const bool has_size = bits[0] == 32 || bits[0] == 16 || (bits[0] == 8 && is_whole);
  return has_size && (is_whole || format.f == cudaChannelFormatKindFloat) && count != 3 ? count : 0;
}

// Descriptions of arrays and objects, each with a tag of its kind. What is destroyed has none and stays
// readable, so that its handle is known for what it is; its memory is used again.
template <typename T>
class Records {
 public:
  // Null where the host has no memory.
  static T* make(const T& value) {
    Records& all = instance();
    const std::lock_guard<std::mutex> lock(all.mutex_);
    Record* record = all.unused_;
    if (record != nullptr) {
      all.unused_ = record->next;
    } else if ((record = new (std::nothrow) Record{}) == nullptr) {
      return nullptr;
    }
    record->value = value;
    return &record->value;
  }
  static void forget(T* value) {
    Records& all = instance();
    const std::lock_guard<std::mutex> lock(all.mutex_);
    value->tag = 0;
    auto* const record = reinterpret_cast<Record*>(value);  // its first member
    record->next = all.unused_;
    all.unused_ = record;
  }

 private:
  struct Record {
    T value;
    Record* next;
  };
  static Records& instance() {
    static auto* const all = new Records;
    return *all;
  }
  std::mutex mutex_;
  Record* unused_ = nullptr;
};

static inline cudaError_t finish(cudaError_t error) {
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

static inline bool is_alive(cudaArray_const_t array) {
  return array != nullptr && array->tag == cudaArray::kTag;
}

// Part of an array, from an element on, as memory with a pitch.
static inline char* place(cudaArray_const_t array, size_t x_bytes, size_t y, size_t z = 0) {
  return array->memory + (z * array->rows() + y) * array->row_bytes() + x_bytes;
}

static inline bool has_box(cudaArray_const_t array, size_t x_bytes, size_t y, size_t width_bytes,
                           size_t height) {
  return x_bytes <= array->row_bytes() && width_bytes <= array->row_bytes() - x_bytes && y <= array->rows() &&
         height <= array->rows() - y;
}
}  // namespace loom_cuda

template <typename T>
static inline cudaChannelFormatDesc cudaCreateChannelDesc() {
  using N = loom_cuda::Number<T>;
  constexpr int kBits = static_cast<int>(sizeof(N)) * 8, kCount = loom_cuda::kLanes<T>;
  if (!std::is_arithmetic_v<N> || kBits > 32) return {0, 0, 0, 0, cudaChannelFormatKindNone};
  return {kBits, kCount > 1 ? kBits : 0, kCount > 2 ? kBits : 0, kCount > 3 ? kBits : 0,
          std::is_floating_point_v<N> ? cudaChannelFormatKindFloat
          : std::is_signed_v<N>       ? cudaChannelFormatKindSigned
                                      : cudaChannelFormatKindUnsigned};
}

static inline cudaError_t cudaMalloc3DArray(cudaArray_t* made, const cudaChannelFormatDesc* format,
                                            cudaExtent extent, unsigned flags = 0) {
  if (made == nullptr || format == nullptr || extent.width == 0) return cudaErrorInvalidValue;
  const int count = loom_cuda::channels(*format);
  if (count == 0) return cudaErrorInvalidChannelDescriptor;
  const bool is_layered = (flags & cudaArrayLayered) != 0;
  if ((is_layered && extent.depth == 0) || (!is_layered && extent.height == 0 && extent.depth != 0)) {
    return cudaErrorInvalidValue;
  }
  if ((flags & cudaArrayCubemap) != 0 &&
      (extent.width != extent.height || (is_layered ? extent.depth % 6 : extent.depth != 6) != 0)) {
    return cudaErrorInvalidValue;
  }
  auto* const array = loom_cuda::Records<cudaArray>::make(
      {cudaArray::kTag, flags, *format, extent, static_cast<size_t>(count * format->x / 8), nullptr});
  if (array == nullptr) return cudaErrorMemoryAllocation;
  size_t bytes = array->element_bytes;
  if (__builtin_mul_overflow(bytes, extent.width, &bytes) ||
      __builtin_mul_overflow(bytes, array->rows(), &bytes) ||
      __builtin_mul_overflow(bytes, array->planes(), &bytes)) {
    loom_cuda::Records<cudaArray>::forget(array);
    return cudaErrorInvalidValue;
  }
  const cudaError_t error = ::cudaMalloc(reinterpret_cast<void**>(&array->memory), bytes);
  if (error != cudaSuccess) {
    loom_cuda::Records<cudaArray>::forget(array);
    return error;
  }
  *made = array;
  return cudaSuccess;
}
static inline cudaError_t cudaMallocArray(cudaArray_t* made, const cudaChannelFormatDesc* format,
                                          size_t width, size_t height = 0, unsigned flags = 0) {
  return cudaMalloc3DArray(made, format, cudaExtent{width, height, 0}, flags);
}
static inline cudaError_t cudaFreeArray(cudaArray_t array) {
  if (array == nullptr) return cudaSuccess;
  if (!loom_cuda::is_alive(array)) return cudaErrorInvalidValue;
  const cudaError_t error = ::cudaFree(array->memory);
  loom_cuda::Records<cudaArray>::forget(array);
  return error;
}
static inline cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags,
                                           cudaArray_t array) {
  if (!loom_cuda::is_alive(array)) return cudaErrorInvalidValue;
  if (format != nullptr) *format = array->format;
  if (extent != nullptr) *extent = array->extent;
  if (flags != nullptr) *flags = array->flags;
  return cudaSuccess;
}
static inline cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
  if (format == nullptr || !loom_cuda::is_alive(array)) return cudaErrorInvalidValue;
  *format = array->format;
  return cudaSuccess;
}

// Copies of rows: widths and offsets of x are in bytes.
static inline cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                                   size_t pitch, size_t width, size_t height,
                                                   cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  if (!loom_cuda::is_alive(to) || !loom_cuda::has_box(to, x, y, width, height)) return cudaErrorInvalidValue;
  return ::cudaMemcpy2DAsync(loom_cuda::place(to, x, y), to->row_bytes(), from, pitch, width, height, kind,
                             stream);
}
static inline cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                                     size_t y, size_t width, size_t height,
                                                     cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  if (!loom_cuda::is_alive(from) || !loom_cuda::has_box(from, x, y, width, height))
    return cudaErrorInvalidValue;
  return ::cudaMemcpy2DAsync(to, pitch, loom_cuda::place(from, x, y), from->row_bytes(), width, height, kind,
                             stream);
}
static inline cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from,
                                              size_t pitch, size_t width, size_t height,
                                              cudaMemcpyKind kind) {
  return loom_cuda::finish(cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind));
}
static inline cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                                size_t y, size_t width, size_t height, cudaMemcpyKind kind) {
  return loom_cuda::finish(cudaMemcpy2DFromArrayAsync(to, pitch, from, x, y, width, height, kind));
}
static inline cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y,
                                                   cudaArray_const_t from, size_t x, size_t y, size_t width,
                                                   size_t height,
                                                   cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
  if (!loom_cuda::is_alive(from) || !loom_cuda::has_box(from, x, y, width, height))
    return cudaErrorInvalidValue;
  return cudaMemcpy2DToArray(to, to_x, to_y, loom_cuda::place(from, x, y), from->row_bytes(), width, height,
                             kind);
}

// So many bytes, row after row, from a place on.
static inline cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                                 size_t bytes, cudaMemcpyKind kind,
                                                 cudaStream_t stream = nullptr) {
  if (!loom_cuda::is_alive(to) || !loom_cuda::has_box(to, x, y, 0, 0)) return cudaErrorInvalidValue;
  char* const begin = loom_cuda::place(to, x, y);
  if (bytes > to->bytes() - static_cast<size_t>(begin - to->memory)) return cudaErrorInvalidValue;
  return ::cudaMemcpyAsync(begin, from, bytes, kind, stream);
}
static inline cudaError_t cudaMemcpyFromArrayAsync(void* to, cudaArray_const_t from, size_t x, size_t y,
                                                   size_t bytes, cudaMemcpyKind kind,
                                                   cudaStream_t stream = nullptr) {
  if (!loom_cuda::is_alive(from) || !loom_cuda::has_box(from, x, y, 0, 0)) return cudaErrorInvalidValue;
  const char* const begin = loom_cuda::place(from, x, y);
  if (bytes > from->bytes() - static_cast<size_t>(begin - from->memory)) return cudaErrorInvalidValue;
  return ::cudaMemcpyAsync(to, begin, bytes, kind, stream);
}
static inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from,
                                            size_t bytes, cudaMemcpyKind kind) {
  return loom_cuda::finish(cudaMemcpyToArrayAsync(to, x, y, from, bytes, kind));
}
static inline cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y,
                                              size_t bytes, cudaMemcpyKind kind) {
  return loom_cuda::finish(cudaMemcpyFromArrayAsync(to, from, x, y, bytes, kind));
}
static inline cudaError_t cudaMemcpyArrayToArray(cudaArray_t to, size_t to_x, size_t to_y,
                                                 cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                                 cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
  if (!loom_cuda::is_alive(from) || !loom_cuda::has_box(from, x, y, 0, 0)) return cudaErrorInvalidValue;
  const char* const begin = loom_cuda::place(from, x, y);
  if (bytes > from->bytes() - static_cast<size_t>(begin - from->memory)) return cudaErrorInvalidValue;
  return cudaMemcpyToArray(to, to_x, to_y, begin, bytes, kind);
}
