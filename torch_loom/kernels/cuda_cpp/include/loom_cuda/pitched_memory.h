// Memory in rows that stand `pitch` bytes apart, and boxes of such rows. cudaArray, which textures read, is
// not there.
#pragma once

#include "loom_cuda/runtime_api.h"

struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct cudaPos {
  size_t x, y, z;
};
// Widths, and x of a position, are in bytes.
struct cudaMemcpy3DParms {
  struct cudaArray* srcArray;
  struct cudaPos srcPos;
  struct cudaPitchedPtr srcPtr;
  struct cudaArray* dstArray;
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

static inline cudaError_t finish(cudaError_t error) {
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}
}  // namespace loom_cuda

template <typename T>
static inline cudaError_t cudaMallocPitch(T** address, size_t* pitch, size_t width, size_t height) {
  if (address == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
  *pitch = (width + loom_cuda::kPitchBytes - 1) / loom_cuda::kPitchBytes * loom_cuda::kPitchBytes;
  return ::cudaMalloc(reinterpret_cast<void**>(address), *pitch * height);
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
  if (copy->srcArray != nullptr || copy->dstArray != nullptr) return cudaErrorNotSupported;
  const auto plane = [](const cudaPitchedPtr& box, const cudaPos& from, size_t z) {
    return static_cast<char*>(box.ptr) + ((from.z + z) * box.ysize + from.y) * box.pitch + from.x;
  };
  for (size_t z = 0; z < copy->extent.depth; ++z) {
    const cudaError_t error = cudaMemcpy2DAsync(plane(copy->dstPtr, copy->dstPos, z), copy->dstPtr.pitch,
                                                plane(copy->srcPtr, copy->srcPos, z), copy->srcPtr.pitch,
                                                copy->extent.width, copy->extent.height, copy->kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
static inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  return loom_cuda::finish(cudaMemcpy3DAsync(copy));
}
