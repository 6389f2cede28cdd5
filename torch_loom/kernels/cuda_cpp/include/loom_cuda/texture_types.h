// Textures and surfaces: what a kernel reads or writes at coordinates, made by the host of an array, of
// memory in a row, or of memory with a pitch. An object is the address of its description here, which is why
// a kernel can read it.
#pragma once

#include "loom_cuda/arrays.h"

#define cudaTextureType1D 0x01
#define cudaTextureType2D 0x02
#define cudaTextureType3D 0x03
#define cudaTextureTypeCubemap 0x0C
#define cudaTextureType1DLayered 0xF1
#define cudaTextureType2DLayered 0xF2
#define cudaTextureTypeCubemapLayered 0xFC
#define cudaSurfaceType1D 0x01
#define cudaSurfaceType2D 0x02
#define cudaSurfaceType3D 0x03
#define cudaSurfaceTypeCubemap 0x0C
#define cudaSurfaceType1DLayered 0xF1
#define cudaSurfaceType2DLayered 0xF2
#define cudaSurfaceTypeCubemapLayered 0xFC

enum cudaResourceType {
  cudaResourceTypeArray = 0,
  cudaResourceTypeMipmappedArray = 1,
  cudaResourceTypeLinear = 2,
  cudaResourceTypePitch2D = 3
};
struct cudaResourceDesc {
  enum cudaResourceType resType;
  union {
    struct {
      cudaArray_t array;
    } array;
    struct {
      cudaMipmappedArray_t mipmap;
    } mipmap;
    struct {
      void* devPtr;
      struct cudaChannelFormatDesc desc;
      size_t sizeInBytes;
    } linear;
    struct {
      void* devPtr;
      struct cudaChannelFormatDesc desc;
      size_t width, height, pitchInBytes;
    } pitch2D;
    struct {
      int reserved[32];
    } reserved;
  } res;
  unsigned int flags;
};
// Another look at an array: the whole of it in its own format is all there is.
enum cudaResourceViewFormat {
  cudaResViewFormatNone = 0,
  cudaResViewFormatUnsignedChar1 = 1,
  cudaResViewFormatUnsignedChar2 = 2,
  cudaResViewFormatUnsignedChar4 = 3,
  cudaResViewFormatSignedChar1 = 4,
  cudaResViewFormatSignedChar2 = 5,
  cudaResViewFormatSignedChar4 = 6,
  cudaResViewFormatUnsignedShort1 = 7,
  cudaResViewFormatUnsignedShort2 = 8,
  cudaResViewFormatUnsignedShort4 = 9,
  cudaResViewFormatSignedShort1 = 10,
  cudaResViewFormatSignedShort2 = 11,
  cudaResViewFormatSignedShort4 = 12,
  cudaResViewFormatUnsignedInt1 = 13,
  cudaResViewFormatUnsignedInt2 = 14,
  cudaResViewFormatUnsignedInt4 = 15,
  cudaResViewFormatSignedInt1 = 16,
  cudaResViewFormatSignedInt2 = 17,
  cudaResViewFormatSignedInt4 = 18,
  cudaResViewFormatHalf1 = 19,
  cudaResViewFormatHalf2 = 20,
  cudaResViewFormatHalf4 = 21,
  cudaResViewFormatFloat1 = 22,
  cudaResViewFormatFloat2 = 23,
  cudaResViewFormatFloat4 = 24,
  cudaResViewFormatUnsignedBlockCompressed1 = 25,
  cudaResViewFormatUnsignedBlockCompressed2 = 26,
  cudaResViewFormatUnsignedBlockCompressed3 = 27,
  cudaResViewFormatUnsignedBlockCompressed4 = 28,
  cudaResViewFormatSignedBlockCompressed4 = 29,
  cudaResViewFormatUnsignedBlockCompressed5 = 30,
  cudaResViewFormatSignedBlockCompressed5 = 31,
  cudaResViewFormatUnsignedBlockCompressed6H = 32,
  cudaResViewFormatSignedBlockCompressed6H = 33,
  cudaResViewFormatUnsignedBlockCompressed7 = 34
};
struct cudaResourceViewDesc {
  enum cudaResourceViewFormat format;
  size_t width, height, depth;
  unsigned int firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
  unsigned int reserved[16];
};
enum cudaTextureAddressMode {
  cudaAddressModeWrap = 0,
  cudaAddressModeClamp = 1,
  cudaAddressModeMirror = 2,
  cudaAddressModeBorder = 3
};
enum cudaTextureFilterMode { cudaFilterModePoint = 0, cudaFilterModeLinear = 1 };
enum cudaTextureReadMode { cudaReadModeElementType = 0, cudaReadModeNormalizedFloat = 1 };
struct cudaTextureDesc {
  enum cudaTextureAddressMode addressMode[3];
  enum cudaTextureFilterMode filterMode;
  enum cudaTextureReadMode readMode;
  int sRGB;
  float borderColor[4];
  int normalizedCoords;
  unsigned int maxAnisotropy;
  enum cudaTextureFilterMode mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
  int disableTrilinearOptimization;
  int seamlessCubemap;
};
enum cudaSurfaceBoundaryMode {
  cudaBoundaryModeZero = 0,
  cudaBoundaryModeClamp = 1,
  cudaBoundaryModeTrap = 2
};
enum cudaSurfaceFormatMode { cudaFormatModeForced = 0, cudaFormatModeAuto = 1 };
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

namespace loom_cuda {

// Where elements are. Sizes of dimensions that the resource lacks are 1; layers are its depth.
struct Grid {
  char* memory;
  int width, height, depth;
  size_t row_bytes;
  int channels, channel_bytes;
  cudaChannelFormatKind kind;

  char* at(int x, int y, int z) const {
    return memory +
           (static_cast<size_t>(z) * static_cast<size_t>(height) + static_cast<size_t>(y)) * row_bytes +
           static_cast<size_t>(x) * static_cast<size_t>(channels * channel_bytes);
  }
};

// What an object is.
struct Fetched {
  static constexpr unsigned kTexture = 0x4C6F6F54, kSurface = 0x4C6F6F53;
  unsigned tag;
  Grid grid;
  cudaResourceDesc resource;
  cudaTextureDesc texture;  // of a texture
};

static inline Fetched* fetched(unsigned long long object, unsigned tag) {
  auto* const found = reinterpret_cast<Fetched*>(object);
  return found != nullptr && found->tag == tag ? found : nullptr;
}

static inline cudaError_t grid_of(const cudaResourceDesc& resource, Grid& grid) {
  const cudaChannelFormatDesc* format = nullptr;
  size_t width = 0, height = 1, depth = 1;
  if (resource.resType == cudaResourceTypeArray) {
    const cudaArray_const_t array = resource.res.array.array;
    if (!is_alive(array)) return cudaErrorInvalidResourceHandle;
    format = &array->format;
    grid.memory = array->memory;
    width = array->extent.width;
    height = array->rows();
    depth = array->planes();
    grid.row_bytes = array->row_bytes();
  } else if (resource.resType == cudaResourceTypeLinear) {
    const auto& row = resource.res.linear;
    format = &row.desc;
    grid.memory = static_cast<char*>(row.devPtr);
    const int count = channels(row.desc);
    if (count == 0) return cudaErrorInvalidChannelDescriptor;
    width = row.sizeInBytes / static_cast<size_t>(count * row.desc.x / 8);
    grid.row_bytes = row.sizeInBytes;
  } else if (resource.resType == cudaResourceTypePitch2D) {
    const auto& rows = resource.res.pitch2D;
    format = &rows.desc;
    grid.memory = static_cast<char*>(rows.devPtr);
    width = rows.width;
    height = rows.height;
    grid.row_bytes = rows.pitchInBytes;
  } else {
    return cudaErrorNotSupported;  // mipmapped arrays
  }
  grid.channels = channels(*format);
  if (grid.channels == 0) return cudaErrorInvalidChannelDescriptor;
  grid.channel_bytes = format->x / 8;
  grid.kind = format->f;
  constexpr size_t kMost = 1U << 30;  // elements of a dimension
  if (grid.memory == nullptr || width == 0 || height == 0 || width > kMost || height > kMost ||
      depth > kMost ||
      (height > 1 && width * static_cast<size_t>(grid.channels * grid.channel_bytes) > grid.row_bytes)) {
    return cudaErrorInvalidValue;
  }
  grid.width = static_cast<int>(width);
  grid.height = static_cast<int>(height);
  grid.depth = static_cast<int>(depth);
  return cudaSuccess;
}

static inline cudaError_t make_object(unsigned long long* object, unsigned kind,
                                      const cudaResourceDesc& resource, const cudaTextureDesc& texture) {
  Grid grid{};
  const cudaError_t error = grid_of(resource, grid);
  if (error != cudaSuccess) return error;
  auto* const made = Records<Fetched>::make(Fetched{kind, grid, resource, texture});
  if (made == nullptr) return cudaErrorMemoryAllocation;
  *object = reinterpret_cast<unsigned long long>(made);
  return cudaSuccess;
}

static inline cudaError_t forget_object(unsigned long long object, unsigned kind) {
  if (object == 0) return cudaSuccess;
  Fetched* const found = fetched(object, kind);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  Records<Fetched>::forget(found);
  return cudaSuccess;
}

static inline cudaError_t resource_of(cudaResourceDesc* resource, const Fetched* found) {
  if (resource == nullptr) return cudaErrorInvalidValue;
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *resource = found->resource;
  return cudaSuccess;
}

static inline bool reads_floats(const cudaTextureDesc& texture, const cudaChannelFormatDesc& format) {
  return format.f == cudaChannelFormatKindFloat ||
         (texture.readMode == cudaReadModeNormalizedFloat && format.x < 32);
}
}  // namespace loom_cuda

static inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t* made, const cudaResourceDesc* resource,
                                                  const cudaTextureDesc* texture,
                                                  const cudaResourceViewDesc* view = nullptr) {
  if (made == nullptr || resource == nullptr || texture == nullptr) return cudaErrorInvalidValue;
  if (texture->sRGB != 0 || (view != nullptr && view->format != cudaResViewFormatNone)) {
    return cudaErrorNotSupported;
  }
  cudaTextureDesc given = *texture;
  for (cudaTextureAddressMode& mode : given.addressMode) {
    if (mode < cudaAddressModeWrap || mode > cudaAddressModeBorder) return cudaErrorInvalidValue;
    const bool needs_normal = mode == cudaAddressModeWrap || mode == cudaAddressModeMirror;
    if (needs_normal && given.normalizedCoords == 0) mode = cudaAddressModeClamp;
  }
  const cudaError_t error = loom_cuda::make_object(made, loom_cuda::Fetched::kTexture, *resource, given);
  if (error != cudaSuccess || given.filterMode == cudaFilterModePoint ||
      resource->resType == cudaResourceTypeLinear) {
    return error;
  }
  const cudaChannelFormatDesc& format = resource->resType == cudaResourceTypeArray
                                            ? resource->res.array.array->format
                                            : resource->res.pitch2D.desc;
  if (loom_cuda::reads_floats(given, format)) return cudaSuccess;
  loom_cuda::forget_object(*made, loom_cuda::Fetched::kTexture);
  return cudaErrorInvalidFilterSetting;  // whole numbers are not interpolated
}
static inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  return loom_cuda::forget_object(object, loom_cuda::Fetched::kTexture);
}
static inline cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                                           cudaTextureObject_t object) {
  return loom_cuda::resource_of(resource, loom_cuda::fetched(object, loom_cuda::Fetched::kTexture));
}
static inline cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* texture,
                                                          cudaTextureObject_t object) {
  if (texture == nullptr) return cudaErrorInvalidValue;
  const auto* const found = loom_cuda::fetched(object, loom_cuda::Fetched::kTexture);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  *texture = found->texture;
  return cudaSuccess;
}
static inline cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* view,
                                                               cudaTextureObject_t object) {
  if (view == nullptr) return cudaErrorInvalidValue;
  if (loom_cuda::fetched(object, loom_cuda::Fetched::kTexture) == nullptr)
    return cudaErrorInvalidResourceHandle;
  *view = {};
  return cudaSuccess;
}
static inline cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* made,
                                                  const cudaResourceDesc* resource) {
  if (made == nullptr || resource == nullptr) return cudaErrorInvalidValue;
  if (resource->resType != cudaResourceTypeArray) return cudaErrorInvalidValue;
  const cudaArray_const_t array = resource->res.array.array;
  if (loom_cuda::is_alive(array) && (array->flags & cudaArraySurfaceLoadStore) == 0)
    return cudaErrorInvalidValue;
  return loom_cuda::make_object(made, loom_cuda::Fetched::kSurface, *resource, {});
}
static inline cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
  return loom_cuda::forget_object(object, loom_cuda::Fetched::kSurface);
}
static inline cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource,
                                                           cudaSurfaceObject_t object) {
  return loom_cuda::resource_of(resource, loom_cuda::fetched(object, loom_cuda::Fetched::kSurface));
}
