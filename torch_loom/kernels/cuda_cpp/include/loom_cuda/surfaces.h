// What kernels read and write by surfaces: x is in bytes.
#pragma once

#include <string.h>

#include "loom_cuda/fetched_object.h"

namespace loom_cuda {

// Where a value of so many bytes is; null where it is outside, and nothing is read or written.
static inline char* on_surface(cudaSurfaceObject_t object, int x, int y, int z, int bytes,
                               cudaSurfaceBoundaryMode mode) {
  const Fetched& found =
      object_of(object, Fetched::kSurface, "a surface object that is none, or is destroyed");
  Grid grid{};
  {
    const Unchecked unchecked;
    grid = found.grid;
  }
  const int last = static_cast<int>(grid.row_bytes) - bytes;
  if (x % bytes != 0) loom_cuda_fail(716, "x of a surface is in bytes, and a multiple of the value's");
  if (x < 0 || x > last || y < 0 || y >= grid.height || z < 0 || z >= grid.depth) {
    if (mode == cudaBoundaryModeZero) return nullptr;
    if (mode != cudaBoundaryModeClamp || last < 0)
      loom_cuda_fail(719, "a surface is left, and cudaBoundaryModeTrap is set");
    x = x < 0 ? 0 : x > last ? last / bytes * bytes : x;
    y = y < 0 ? 0 : y >= grid.height ? grid.height - 1 : y;
    z = z < 0 ? 0 : z >= grid.depth ? grid.depth - 1 : z;
  }
  return grid.at(0, y, z) + x;
}
}  // namespace loom_cuda

#define LOOM_CUDA_PARAMETERS(...) __VA_ARGS__
#define LOOM_CUDA_SURFACE(name, parameters, arguments, y, z)                                           \
  template <typename T>                                                                                \
  static inline T name##read(cudaSurfaceObject_t object, LOOM_CUDA_PARAMETERS parameters,              \
                             cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                    \
    T value{};                                                                                         \
    const char* const at = loom_cuda::on_surface(object, x, y, z, sizeof(T), mode);                    \
    const loom_cuda::Unchecked unchecked;                                                              \
    if (at != nullptr) memcpy(&value, at, sizeof(T));                                                  \
    return value;                                                                                      \
  }                                                                                                    \
  template <typename T>                                                                                \
  static inline void name##read(T* value, cudaSurfaceObject_t object, LOOM_CUDA_PARAMETERS parameters, \
                                cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                 \
    *value = name##read<T>(object, LOOM_CUDA_PARAMETERS arguments, mode);                              \
  }                                                                                                    \
  template <typename T>                                                                                \
  static inline void name##write(T value, cudaSurfaceObject_t object, LOOM_CUDA_PARAMETERS parameters, \
                                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                \
    char* const at = loom_cuda::on_surface(object, x, y, z, sizeof(T), mode);                          \
    const loom_cuda::Unchecked unchecked;                                                              \
    if (at != nullptr) memcpy(at, &value, sizeof(T));                                                  \
  }
LOOM_CUDA_SURFACE(surf1D, (int x), (x), 0, 0)
LOOM_CUDA_SURFACE(surf2D, (int x, int y), (x, y), y, 0)
LOOM_CUDA_SURFACE(surf3D, (int x, int y, int z), (x, y, z), y, z)
LOOM_CUDA_SURFACE(surf1DLayered, (int x, int layer), (x, layer), 0, layer)
LOOM_CUDA_SURFACE(surf2DLayered, (int x, int y, int layer), (x, y, layer), y, layer)
LOOM_CUDA_SURFACE(surfCubemap, (int x, int y, int face), (x, y, face), y, face)
LOOM_CUDA_SURFACE(surfCubemapLayered, (int x, int y, int face), (x, y, face), y, face)
#undef LOOM_CUDA_SURFACE
#undef LOOM_CUDA_PARAMETERS
