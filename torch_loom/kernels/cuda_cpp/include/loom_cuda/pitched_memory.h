// Memory in rows that stand `pitch` bytes apart, and boxes of such rows or of arrays.
#pragma once

#include "loom_cuda/arrays.h"

struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct cudaPos {
  size_t x, y, z;
};
// A position is in elements of an array, and in bytes of other memory. So is the extent: in elements if an
// array takes part.
struct cudaMemcpy3DParms {
  cudaArray_t srcArray;
  struct cudaPos srcPos;
  struct cudaPitchedPtr srcPtr;
  cudaArray_t dstArray;
  struct cudaPos dstPos;
  struct cudaPitchedPtr dstPtr;
  struct cudaExtent extent;
  enum cudaMemcpyKind kind;
};
static inline cudaPitchedPtr make_cudaPitchedPtr(void* ptr, size_t pitch, size_t xsize, size_t ysize) {
  return {ptr, pitch, xsize, ysize};
}
static inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
static inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) {
  return {width, height, depth};
}

namespace loom_cuda {
// Rows begin at multiples of 512 bytes, as they do on NVIDIA's GPUs.
inline constexpr size_t kPitchBytes = 512;

// One end of a copy of a box.
struct BoxEnd {
  char* begin;
  size_t pitch, plane_bytes;

  // Null where the box does not fit an array.
  static BoxEnd of(cudaArray_const_t array, const cudaPitchedPtr& box, const cudaPos& from,
                   const cudaExtent& extent, size_t width_bytes) {
    if (array == nullptr) {
      const size_t plane_bytes = box.ysize * box.pitch;
      return {static_cast<char*>(box.ptr) + from.z * plane_bytes + from.y * box.pitch + from.x, box.pitch,
              plane_bytes};
    }
    const size_t x = from.x * array->element_bytes;
    const bool fits = is_alive(array) && has_box(array, x, from.y, width_bytes, extent.height) &&
                      from.z <= array->planes() && extent.depth <= array->planes() - from.z;
    if (!fits) return {nullptr, 0, 0};
    return {place(array, x, from.y, from.z), array->row_bytes(), array->row_bytes() * array->rows()};
  }
};
}  // namespace loom_cuda

template <typename T>
static inline cudaError_t cudaMallocPitch(T** address, size_t* pitch, size_t width, size_t height) {
  if (address == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
  *pitch = (width + loom_cuda::kPitchBytes - 1) / loom_cuda::kPitchBytes * loom_cuda::kPitchBytes;
  return ::cudaMalloc((void**)address, *pitch * height);
}
static inline cudaError_t cudaMalloc3D(cudaPitchedPtr* made, cudaExtent extent) {
  if (made == nullptr) return cudaErrorInvalidValue;
  made->xsize = extent.width;
  made->ysize = extent.height;
  return cudaMallocPitch(&made->ptr, &made->pitch, extent.width, extent.height * extent.depth);
}

static inline cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width,
                                            size_t height, cudaStream_t stream = nullptr) {
  if (width > pitch && height > 1) return cudaErrorInvalidValue;
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        ::cudaMemsetAsync(static_cast<char*>(address) + row * pitch, value, width, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
static inline cudaError_t cudaMemset2D(void* address, size_t pitch, int value, size_t width, size_t height) {
  return loom_cuda::finish(cudaMemset2DAsync(address, pitch, value, width, height));
}
static inline cudaError_t cudaMemset3DAsync(cudaPitchedPtr at, int value, cudaExtent extent,
                                            cudaStream_t stream = nullptr) {
  for (size_t z = 0; z < extent.depth; ++z) {
    char* const plane = static_cast<char*>(at.ptr) + z * at.pitch * at.ysize;
    const cudaError_t error = cudaMemset2DAsync(plane, at.pitch, value, extent.width, extent.height, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
static inline cudaError_t cudaMemset3D(cudaPitchedPtr at, int value, cudaExtent extent) {
  return loom_cuda::finish(cudaMemset3DAsync(at, value, extent));
}
static inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t stream = nullptr) {
  if (copy == nullptr) return cudaErrorInvalidValue;
  const cudaArray_const_t arrays[] = {copy->srcArray, copy->dstArray};
  size_t element_bytes = 0;
  for (const cudaArray_const_t array : arrays) {
    if (array == nullptr) continue;
    if (!loom_cuda::is_alive(array)) return cudaErrorInvalidValue;
    if (element_bytes != 0 && array->element_bytes != element_bytes) return cudaErrorInvalidValue;
    element_bytes = array->element_bytes;
  }
  const size_t width = copy->extent.width * (element_bytes == 0 ? 1 : element_bytes);
  using loom_cuda::BoxEnd;
  const BoxEnd from = BoxEnd::of(copy->srcArray, copy->srcPtr, copy->srcPos, copy->extent, width);
  const BoxEnd to = BoxEnd::of(copy->dstArray, copy->dstPtr, copy->dstPos, copy->extent, width);
  if (from.begin == nullptr || to.begin == nullptr) return cudaErrorInvalidValue;
  for (size_t z = 0; z < copy->extent.depth; ++z) {
    const cudaError_t error =
        cudaMemcpy2DAsync(to.begin + z * to.plane_bytes, to.pitch, from.begin + z * from.plane_bytes,
                          from.pitch, width, copy->extent.height, copy->kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
static inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  return loom_cuda::finish(cudaMemcpy3DAsync(copy));
}

struct cudaMemcpy3DPeerParms {
  cudaArray_t srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  int srcDevice;
  cudaArray_t dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  int dstDevice;
  cudaExtent extent;
};
// Addresses say which device they are of.
static inline cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* copy,
                                                cudaStream_t stream = nullptr) {
  if (copy == nullptr) return cudaErrorInvalidValue;
  const cudaMemcpy3DParms box = {copy->srcArray, copy->srcPos, copy->srcPtr, copy->dstArray,
                                 copy->dstPos,   copy->dstPtr, copy->extent, cudaMemcpyDefault};
  return cudaMemcpy3DAsync(&box, stream);
}
static inline cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* copy) {
  return loom_cuda::finish(cudaMemcpy3DPeerAsync(copy));
}
