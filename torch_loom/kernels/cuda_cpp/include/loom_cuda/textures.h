// What kernels read by textures: CUDA C++ Programming Guide, "Texture Fetching". Weights of an interpolation
// have 8 bits behind the point, to the nearest.
#pragma once

#include <math.h>
#include <string.h>

#include "loom_cuda/fetched_object.h"
#include "loom_cuda/half_bits.h"

namespace loom_cuda {

static __forceinline__ const Fetched& texture_of(cudaTextureObject_t object) {
  return object_of(object, Fetched::kTexture, "a texture object that is none, or is destroyed");
}

// The bits of a channel, of a signed one with its sign.
static inline int channel_bits(const Grid& grid, const char* at) {
  const bool is_signed = grid.kind == cudaChannelFormatKindSigned;
  if (grid.channel_bytes == 1)
    return is_signed ? static_cast<signed char>(*at) : static_cast<unsigned char>(*at);
  if (grid.channel_bytes == 2) {
    unsigned short bits;
    memcpy(&bits, at, 2);
    return is_signed ? static_cast<short>(bits) : bits;
  }
  int bits;
  memcpy(&bits, at, 4);
  return bits;
}

template <typename N>
static inline N channel(const Grid& grid, const char* at, bool is_normalized) {
  const int bits = channel_bits(grid, at);
  if constexpr (std::is_same_v<N, float>) {
    if (grid.kind == cudaChannelFormatKindFloat) {
      if (grid.channel_bytes == 2) return float_of_half(static_cast<unsigned short>(bits));
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    if (!is_normalized || grid.channel_bytes == 4) return static_cast<float>(bits);
    if (grid.kind == cudaChannelFormatKindUnsigned) {
      return static_cast<float>(bits) / (grid.channel_bytes == 1 ? 255.0F : 65535.0F);
    }
    return fmaxf(static_cast<float>(bits) / (grid.channel_bytes == 1 ? 127.0F : 32767.0F), -1.0F);
  } else {
    return static_cast<N>(bits);
  }
}

// The position of an element beyond the ends of a dimension; negative where the border is read.
static int folded(int at, int size, cudaTextureAddressMode mode) {
  if (mode == cudaAddressModeBorder) return -1;
  if (mode == cudaAddressModeClamp) return at < 0 ? 0 : size - 1;
  const int period = mode == cudaAddressModeMirror ? 2 * size : size;
  const int within = (at % period + period) % period;
  return within < size ? within : period - 1 - within;
}

static __forceinline__ int addressed(int at, int size, cudaTextureAddressMode mode) {
  return at >= 0 && at < size ? at : folded(at, size, mode);
}

// A coordinate in elements, within a few of the texture's size.
static __forceinline__ float in_elements(float at, int size, cudaTextureAddressMode mode,
                                         bool is_normalized) {
  if (is_normalized) {
    const float whole = floorf(at);
    if (mode == cudaAddressModeWrap) at -= whole;
    if (mode == cudaAddressModeMirror) {
      at -= whole;
      if (fmodf(whole, 2) != 0) at = 1 - at;
    }
    at *= static_cast<float>(size);
  }
  // Comparisons, since fminf() is a call; NaN is below all.
  const float most = static_cast<float>(size) + 4;
  return at > -4 ? at < most ? at : most : -4;
}

template <typename N>
struct Texel {
  N lanes[4];
};

// Elements that a fetch names: positions, and how each dimension goes on beyond its end.
struct Place {
  int at[3];
  cudaTextureAddressMode modes[3];
};

template <typename N>
static __forceinline__ Texel<N> texel(const Fetched& from, const Place& place) {
  const Grid& grid = from.grid;
  const int x = addressed(place.at[0], grid.width, place.modes[0]),
            y = addressed(place.at[1], grid.height, place.modes[1]),
            z = addressed(place.at[2], grid.depth, place.modes[2]);
  Texel<N> found{};
  if (x < 0 || y < 0 || z < 0) {
    for (int i = 0; i < 4; ++i) found.lanes[i] = static_cast<N>(from.texture.borderColor[i]);
    return found;
  }
  const char* const begin = grid.at(x, y, z);
  const bool is_float = grid.kind == cudaChannelFormatKindFloat;
  if (grid.channel_bytes == sizeof(N) && is_float == std::is_same_v<N, float>) {  // as most programs read
    memcpy(found.lanes, begin, sizeof(N));
    for (int i = 1; i < grid.channels; ++i) memcpy(&found.lanes[i], begin + i * sizeof(N), sizeof(N));
    return found;
  }
  const bool is_normalized = from.texture.readMode == cudaReadModeNormalizedFloat;
  for (int i = 0; i < grid.channels; ++i) {
    found.lanes[i] = channel<N>(grid, begin + i * grid.channel_bytes, is_normalized);
  }
  return found;
}

// Where a fetch reads, in elements. A face of a cube has coordinates of its own.
template <int kDimensions>
struct Around {
  Place place;
  float at[kDimensions];
};
template <int kDimensions>
static __forceinline__ Around<kDimensions> around(const Fetched& from, const float* at, int layer,
                                                  bool is_face) {
  const int sizes[] = {from.grid.width, from.grid.height, from.grid.depth};
  Around<kDimensions> found{
      {{0, 0, layer < 0 ? 0 : layer}, {cudaAddressModeClamp, cudaAddressModeClamp, cudaAddressModeClamp}},
      {}};
  for (int i = 0; i < kDimensions; ++i) {
    if (!is_face) found.place.modes[i] = from.texture.addressMode[i];
    const bool is_normalized = is_face || from.texture.normalizedCoords != 0;
    found.at[i] = in_elements(at[i], sizes[i], found.place.modes[i], is_normalized);
  }
  return found;
}

// Returns the weights of the elements behind the first, to which `near` is set.
template <int kDimensions>
static __forceinline__ void interpolate(Around<kDimensions>& near, float (&weights)[kDimensions]) {
  for (int i = 0; i < kDimensions; ++i) {
    const float steps = floorf((near.at[i] - 0.5F) * 256 + 0.5F), whole = floorf(steps / 256);
    near.place.at[i] = static_cast<int>(whole);
    weights[i] = steps / 256 - whole;
  }
}

template <typename T>
static __forceinline__ T of_lanes(const Texel<Number<T>>& texel) {
  static_assert(kLanes<T> <= 4);
  T value;
  memcpy(&value, texel.lanes, sizeof(T));
  return value;
}

template <int kDimensions>
static Texel<float> interpolated(const Fetched& from, Around<kDimensions> near) {
  float weights[kDimensions];
  interpolate(near, weights);
  Texel<float> sum{};
  for (int corner = 0; corner < 1 << kDimensions; ++corner) {
    Place place = near.place;
    float weight = 1;
    for (int i = 0; i < kDimensions; ++i) {
      const int step = corner >> i & 1;
      place.at[i] += step;
      weight *= step != 0 ? weights[i] : 1 - weights[i];
    }
    if (weight == 0) continue;
    const Texel<float> found = texel<float>(from, place);
    for (int i = 0; i < 4; ++i) sum.lanes[i] += weight * found.lanes[i];
  }
  return sum;
}

template <typename T, int kDimensions>
static __forceinline__ T sampled(const Fetched& from, const float (&at)[kDimensions], int layer,
                                 bool is_face = false) {
  using N = Number<T>;
  const Unchecked unchecked;  // the program has no pointer to what is read
  Around<kDimensions> near = around<kDimensions>(from, at, layer, is_face);
  if constexpr (std::is_same_v<N, float>) {
    if (from.texture.filterMode == cudaFilterModeLinear) return of_lanes<T>(interpolated(from, near));
  }
  for (int i = 0; i < kDimensions; ++i) near.place.at[i] = static_cast<int>(floorf(near.at[i]));
  return of_lanes<T>(texel<N>(from, near.place));
}

template <typename T>
static inline T sampled_cube(cudaTextureObject_t object, float x, float y, float z, int layer) {
  const float ax = fabsf(x), ay = fabsf(y), az = fabsf(z);
  int face;
  float most, s, t;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1;
    most = ax, s = x >= 0 ? -z : z, t = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3;
    most = ay, s = x, t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5;
    most = az, s = z >= 0 ? x : -x, t = -y;
  }
  const float at[] = {(s / most + 1) / 2, (t / most + 1) / 2};
  const Fetched& from = texture_of(object);
  const Unchecked unchecked;
  const int last = from.grid.depth / 6 - 1;
  return sampled<T>(from, at, 6 * (layer < 0 ? 0 : layer > last ? last : layer) + face, true);
}
}  // namespace loom_cuda

// Elements of memory in a row: 0 outside of it.
template <typename T>
static inline T tex1Dfetch(cudaTextureObject_t object, int x) {
  const loom_cuda::Fetched& from = loom_cuda::texture_of(object);
  const loom_cuda::Unchecked unchecked;
  if (x < 0 || x >= from.grid.width) return T{};
  const loom_cuda::Place place{{x, 0, 0}, {cudaAddressModeClamp, cudaAddressModeClamp, cudaAddressModeClamp}};
  return loom_cuda::of_lanes<T>(loom_cuda::texel<loom_cuda::Number<T>>(from, place));
}
template <typename T>
static inline void tex1Dfetch(T* value, cudaTextureObject_t object, int x) {
  *value = tex1Dfetch<T>(object, x);
}

// Each in the form that returns the value and in the one that writes it; by level and by gradient, of
// textures that have one level.
#define LOOM_CUDA_PARAMETERS(...) __VA_ARGS__
#define LOOM_CUDA_FETCH(name, parameters, arguments, found)                                        \
  template <typename T>                                                                            \
  static inline T name(cudaTextureObject_t object, LOOM_CUDA_PARAMETERS parameters) {              \
    return found;                                                                                  \
  }                                                                                                \
  template <typename T>                                                                            \
  static inline void name(T* value, cudaTextureObject_t object, LOOM_CUDA_PARAMETERS parameters) { \
    *value = name<T>(object, LOOM_CUDA_PARAMETERS arguments);                                      \
  }
#define LOOM_CUDA_FETCHES(name, coordinates, names, derivative, found)                                   \
  LOOM_CUDA_FETCH(name, (LOOM_CUDA_PARAMETERS coordinates), (LOOM_CUDA_PARAMETERS names), found)         \
  LOOM_CUDA_FETCH(name##Lod, (LOOM_CUDA_PARAMETERS coordinates, float), (LOOM_CUDA_PARAMETERS names, 0), \
                  found)                                                                                 \
  LOOM_CUDA_FETCH(name##Grad, (LOOM_CUDA_PARAMETERS coordinates, derivative, derivative),                \
                  (LOOM_CUDA_PARAMETERS names, derivative{}, derivative{}), found)
#define LOOM_CUDA_SAMPLED(layer, ...)                                            \
  ([&] {                                                                         \
    const float loom_at[] = {__VA_ARGS__};                                       \
    return loom_cuda::sampled<T>(loom_cuda::texture_of(object), loom_at, layer); \
  }())
LOOM_CUDA_FETCHES(tex1D, (float x), (x), float, LOOM_CUDA_SAMPLED(0, x))
LOOM_CUDA_FETCHES(tex2D, (float x, float y), (x, y), float2, LOOM_CUDA_SAMPLED(0, x, y))
LOOM_CUDA_FETCHES(tex3D, (float x, float y, float z), (x, y, z), float4, LOOM_CUDA_SAMPLED(0, x, y, z))
LOOM_CUDA_FETCHES(tex1DLayered, (float x, int layer), (x, layer), float, LOOM_CUDA_SAMPLED(layer, x))
LOOM_CUDA_FETCHES(tex2DLayered, (float x, float y, int layer), (x, y, layer), float2,
                  LOOM_CUDA_SAMPLED(layer, x, y))
LOOM_CUDA_FETCHES(texCubemap, (float x, float y, float z), (x, y, z), float4,
                  loom_cuda::sampled_cube<T>(object, x, y, z, 0))
LOOM_CUDA_FETCHES(texCubemapLayered, (float x, float y, float z, int layer), (x, y, z, layer), float4,
                  loom_cuda::sampled_cube<T>(object, x, y, z, layer))
#undef LOOM_CUDA_SAMPLED
#undef LOOM_CUDA_FETCHES
#undef LOOM_CUDA_FETCH
#undef LOOM_CUDA_PARAMETERS

// One channel of the four elements around a place, counter-clockwise from the lower left.
template <typename T>
static inline T tex2Dgather(cudaTextureObject_t object, float x, float y, int channel = 0) {
  using N = loom_cuda::Number<T>;
  const loom_cuda::Fetched& from = loom_cuda::texture_of(object);
  const loom_cuda::Unchecked unchecked;
  const float at[] = {x, y};
  loom_cuda::Around<2> near = loom_cuda::around<2>(from, at, 0, false);
  float weights[2];
  loom_cuda::interpolate(near, weights);
  constexpr int kSteps[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  loom_cuda::Texel<N> found{};
  for (int i = 0; i < 4; ++i) {
    loom_cuda::Place place = near.place;
    for (int j = 0; j < 2; ++j) place.at[j] += kSteps[i][j];
    found.lanes[i] = loom_cuda::texel<N>(from, place).lanes[channel & 3];
  }
  return loom_cuda::of_lanes<T>(found);
}
template <typename T>
static inline void tex2Dgather(T* value, cudaTextureObject_t object, float x, float y, int channel = 0) {
  *value = tex2Dgather<T>(object, x, y, channel);
}
