// Arrays, textures and surfaces, by objects.
#include <cuda_fp16.h>
#include <texture_types.h>

#include <initializer_list>
#include <vector>

#define TRY(call) \
  if ((call) != cudaSuccess) return #call
#define REFUSED(error, call) \
  if ((call) != error) return #call

static cudaResourceDesc of_array(cudaArray_t array) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}
static cudaTextureDesc by(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool is_normalized,
                          cudaTextureReadMode reads = cudaReadModeElementType) {
  cudaTextureDesc texture{};
  for (auto& one : texture.addressMode) one = mode;
  texture.filterMode = filter;
  texture.readMode = reads;
  texture.normalizedCoords = is_normalized;
  return texture;
}

__global__ void sample(cudaTextureObject_t texture, const float2* at, int n, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = tex2D<float>(texture, at[i].x, at[i].y);
}

// image: [height, width], at: [n, 2], of the host. From an array, or from memory with a pitch.
extern "C" const char* sampled(const float* image, int width, int height, const float2* at, int n, int mode,
                               int filter, int is_normalized, int has_pitch, float* out) {
  float2* places;
  float *found, *rows = nullptr;
  cudaArray_t array = nullptr;
  const size_t bytes = width * sizeof(float);
  const auto format = cudaCreateChannelDesc<float>();
  cudaResourceDesc resource{};
  if (has_pitch) {
    auto& memory = resource.res.pitch2D;
    resource.resType = cudaResourceTypePitch2D;
    TRY(cudaMallocPitch(&rows, &memory.pitchInBytes, bytes, height));
    TRY(cudaMemcpy2D(rows, memory.pitchInBytes, image, bytes, bytes, height, cudaMemcpyHostToDevice));
    memory.devPtr = rows;
    memory.desc = format;
    memory.width = width;
    memory.height = height;
  } else {
    TRY(cudaMallocArray(&array, &format, width, height));
    TRY(cudaMemcpy2DToArray(array, 0, 0, image, bytes, bytes, height, cudaMemcpyHostToDevice));
    resource = of_array(array);
  }
  const auto texture = by(cudaTextureAddressMode(mode), cudaTextureFilterMode(filter), is_normalized);
  cudaTextureObject_t object;
  TRY(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
  TRY(cudaMalloc(&places, n * sizeof(float2)));
  TRY(cudaMalloc(&found, n * sizeof(float)));
  TRY(cudaMemcpy(places, at, n * sizeof(float2), cudaMemcpyHostToDevice));
  sample<<<(n + 63) / 64, 64>>>(object, places, n, found);
  TRY(cudaMemcpy(out, found, n * sizeof(float), cudaMemcpyDeviceToHost));
  TRY(cudaDestroyTextureObject(object));
  if (array != nullptr) TRY(cudaFreeArray(array));
  TRY(cudaFree(rows));
  TRY(cudaFree(places));
  return cudaFree(found) == cudaSuccess ? nullptr : "cudaFree";
}

__managed__ int wrong;

template <typename T>
__device__ void expect(T found, T wanted) {
  if (memcmp(&found, &wanted, sizeof(T)) != 0) atomicAdd(&wrong, 1);
}

__global__ void read_formats(cudaTextureObject_t bytes, cudaTextureObject_t whole, cudaTextureObject_t shorts,
                             cudaTextureObject_t halves, cudaTextureObject_t row) {
  expect(tex1D<float4>(bytes, 1), make_float4(1, 0, 51 / 255.0f, 102 / 255.0f));
  expect(tex1D<uchar4>(whole, 1), make_uchar4(255, 0, 51, 102));
  expect(tex1D<float>(shorts, 0), -1.0f);
  expect(tex1D<float>(shorts, 1), 1.0f);
  expect(tex1D<float2>(halves, 0), make_float2(0.5f, -2));
  expect(tex1Dfetch<int>(row, 2), -7);
  expect(tex1Dfetch<int>(row, 3), 0);
  expect(tex1Dfetch<int>(row, -1), 0);
  int value = 1;
  tex1Dfetch(&value, row, 1);
  expect(value, 6);
}

template <typename T>
static const char* texture_of(cudaTextureObject_t* made, cudaArray_t* array, std::initializer_list<T> values,
                              cudaChannelFormatDesc format, cudaTextureReadMode reads) {
  TRY(cudaMallocArray(array, &format, values.size()));
  TRY(cudaMemcpyToArray(*array, 0, 0, values.begin(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  const auto resource = of_array(*array);
  const auto texture = by(cudaAddressModeClamp, cudaFilterModePoint, false, reads);
  TRY(cudaCreateTextureObject(made, &resource, &texture, nullptr));
  return nullptr;
}

extern "C" const char* formats() {
  cudaTextureObject_t objects[5];
  cudaArray_t arrays[4];
  const auto bytes = {make_uchar4(1, 2, 3, 4), make_uchar4(255, 0, 51, 102)};
  const auto normal = cudaReadModeNormalizedFloat, as_is = cudaReadModeElementType;
  if (auto* failed = texture_of(&objects[0], &arrays[0], bytes, cudaCreateChannelDesc<uchar4>(), normal))
    return failed;
  if (auto* failed = texture_of(&objects[1], &arrays[1], bytes, cudaCreateChannelDesc<uchar4>(), as_is))
    return failed;
  const std::initializer_list<short> shorts = {-32768, 32767};
  if (auto* failed = texture_of(&objects[2], &arrays[2], shorts, cudaCreateChannelDesc<short>(), normal))
    return failed;
  const std::initializer_list<__half2> halves = {__floats2half2_rn(0.5f, -2)};
  const auto two_halves = cudaCreateChannelDesc(16, 16, 0, 0, cudaChannelFormatKindFloat);
  if (auto* failed = texture_of(&objects[3], &arrays[3], halves, two_halves, as_is)) return failed;
  const int numbers[] = {5, 6, -7};
  int* row;
  TRY(cudaMalloc(&row, sizeof(numbers)));
  TRY(cudaMemcpy(row, numbers, sizeof(numbers), cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear = {row, cudaCreateChannelDesc<int>(), sizeof(numbers)};
  const auto texture = by(cudaAddressModeClamp, cudaFilterModePoint, false);
  TRY(cudaCreateTextureObject(&objects[4], &resource, &texture, nullptr));
  wrong = 0;
  read_formats<<<1, 1>>>(objects[0], objects[1], objects[2], objects[3], objects[4]);
  TRY(cudaDeviceSynchronize());
  for (const auto object : objects) TRY(cudaDestroyTextureObject(object));
  for (const auto array : arrays) TRY(cudaFreeArray(array));
  TRY(cudaFree(row));
  return wrong == 0 ? nullptr : "a value";
}

// Each element holds its number, counted from x over y to z.
__global__ void read_places(cudaTextureObject_t box, cudaTextureObject_t layers, cudaTextureObject_t cube,
                            int size) {
  const int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
  const float number = (z * size + y) * size + x;
  expect(tex3D<float>(box, x + 0.5f, y + 0.5f, z + 0.5f), number);
  expect(tex2DLayered<float>(layers, x + 0.5f, y + 0.5f, z), number);
  // The places of a face in the coordinates of the cube.
  const float s = (2 * x + 1.0f) / size - 1, t = (2 * y + 1.0f) / size - 1;
  const float3 on_faces[] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s, -t, -1}};
  const float3 at = on_faces[z];
  expect(texCubemap<float>(cube, at.x, at.y, at.z), number);
  expect(texCubemapLayered<float>(cube, 3 * at.x, 3 * at.y, 3 * at.z, 0), number);
}

extern "C" const char* dimensions() {
  constexpr int kSize = 4, kDepth = 6;
  std::vector<float> numbers(kSize * kSize * kDepth);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  const auto format = cudaCreateChannelDesc<float>();
  cudaArray_t arrays[3];
  cudaTextureObject_t objects[3];
  const unsigned flags[] = {cudaArrayDefault, cudaArrayLayered, cudaArrayCubemap};
  for (int i = 0; i < 3; ++i) {
    const auto extent = make_cudaExtent(kSize, kSize, kDepth);
    TRY(cudaMalloc3DArray(&arrays[i], &format, extent, flags[i]));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(numbers.data(), kSize * sizeof(float), kSize, kSize);
    copy.dstArray = arrays[i];
    copy.extent = make_cudaExtent(kSize, kSize, kDepth / 2);
    copy.kind = cudaMemcpyHostToDevice;
    TRY(cudaMemcpy3D(&copy));
    copy.srcPos = copy.dstPos = make_cudaPos(0, 0, kDepth / 2);
    TRY(cudaMemcpy3D(&copy));
    copy.dstPos.x = 1;  // beyond the array
    REFUSED(cudaErrorInvalidValue, cudaMemcpy3D(&copy));
    const auto resource = of_array(arrays[i]);
    const auto texture = by(cudaAddressModeClamp, cudaFilterModeLinear, false);
    TRY(cudaCreateTextureObject(&objects[i], &resource, &texture, nullptr));
    cudaChannelFormatDesc told;
    cudaExtent size;
    unsigned marks;
    TRY(cudaArrayGetInfo(&told, &size, &marks, arrays[i]));
    if (told.x != 32 || size.depth != kDepth || marks != flags[i]) return "cudaArrayGetInfo";
  }
  wrong = 0;
  read_places<<<1, dim3(kSize, kSize, kDepth)>>>(objects[0], objects[1], objects[2], kSize);
  TRY(cudaDeviceSynchronize());
  for (int i = 0; i < 3; ++i) {
    TRY(cudaDestroyTextureObject(objects[i]));
    TRY(cudaFreeArray(arrays[i]));
  }
  return wrong == 0 ? nullptr : "a value";
}

__global__ void write_surface(cudaSurfaceObject_t surface, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  // What is outside is left.
  surf2Dwrite(10 * y + x, surface, 4 * x, y, cudaBoundaryModeZero);
}
__global__ void read_surface(cudaSurfaceObject_t surface, cudaTextureObject_t texture) {
  expect(surf2Dread<int>(surface, 8, 1), 12);
  expect(surf2Dread<int>(surface, 400, -3, cudaBoundaryModeZero), 0);
  expect(surf2Dread<int>(surface, 400, -3, cudaBoundaryModeClamp), 4);
  int pair;
  surf2Dread(&pair, surface, 0, 2);
  expect(pair, 20);
  expect(tex2Dgather<int4>(texture, 2, 2), make_int4(21, 22, 12, 11));
}
__global__ void leave_surface(cudaSurfaceObject_t surface) { surf2Dwrite(1, surface, 0, 99); }

extern "C" const char* surfaces(int leaves) {
  constexpr int kWidth = 5, kHeight = 3;
  const auto format = cudaCreateChannelDesc<int>();
  cudaArray_t array, copy;
  TRY(cudaMallocArray(&array, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  const auto resource = of_array(array);
  const auto texture = by(cudaAddressModeClamp, cudaFilterModePoint, false);
  cudaSurfaceObject_t surface;
  cudaTextureObject_t object;
  TRY(cudaCreateSurfaceObject(&surface, &resource));
  TRY(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
  wrong = 0;
  write_surface<<<dim3(2, kHeight + 1), 4>>>(surface, kWidth, kHeight);
  read_surface<<<1, 1>>>(surface, object);
  TRY(cudaDeviceSynchronize());
  if (wrong != 0) return "a value";

  int rows[kHeight][kWidth] = {}, part[2][2];
  TRY(cudaMemcpy2DFromArray(rows, sizeof(rows[0]), array, 0, 0, sizeof(rows[0]), kHeight,
                            cudaMemcpyDeviceToHost));
  if (rows[2][4] != 24) return "cudaMemcpy2DFromArray";
  TRY(cudaMallocArray(&copy, &format, 2, 2));
  TRY(cudaMemcpy2DArrayToArray(copy, 0, 0, array, 4, 1, 8, 2));
  TRY(cudaMemcpyFromArray(part, copy, 0, 0, sizeof(part), cudaMemcpyDeviceToHost));
  if (part[0][0] != 11 || part[1][1] != 22) return "cudaMemcpy2DArrayToArray";
  REFUSED(cudaErrorInvalidValue,
          cudaMemcpy2DToArray(copy, 4, 0, rows, sizeof(rows[0]), 8, 1, cudaMemcpyHostToDevice));
  TRY(cudaFreeArray(copy));
  if (leaves) {
    leave_surface<<<1, 1>>>(surface);
    cudaDeviceSynchronize();
    REFUSED(cudaErrorLaunchFailure, cudaGetLastError());
    return nullptr;
  }
  TRY(cudaDestroySurfaceObject(surface));
  TRY(cudaDestroyTextureObject(object));
  return cudaFreeArray(array) == cudaSuccess ? nullptr : "cudaFreeArray";
}

extern "C" const char* refusals() {
  cudaArray_t array;
  const auto whole = cudaCreateChannelDesc<int>();
  for (const auto& format : {cudaCreateChannelDesc(32, 32, 32, 0, cudaChannelFormatKindFloat),
                             cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindFloat),
                             cudaCreateChannelDesc(32, 16, 0, 0, cudaChannelFormatKindSigned)}) {
    REFUSED(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&array, &format, 4));
  }
  REFUSED(cudaErrorInvalidValue, cudaMallocArray(&array, &whole, 0));
  REFUSED(cudaErrorInvalidValue,
          cudaMalloc3DArray(&array, &whole, make_cudaExtent(4, 4, 5), cudaArrayCubemap));
  REFUSED(cudaErrorInvalidValue, cudaMallocArray(&array, &whole, size_t(1) << 40, size_t(1) << 40));
  TRY(cudaMallocArray(&array, &whole, 4, 4));
  auto resource = of_array(array);
  auto texture = by(cudaAddressModeClamp, cudaFilterModeLinear, false);
  cudaTextureObject_t object = 0;
  REFUSED(cudaErrorInvalidFilterSetting, cudaCreateTextureObject(&object, &resource, &texture, nullptr));
  REFUSED(cudaErrorInvalidValue, cudaCreateTextureObject(&object, nullptr, &texture, nullptr));
  REFUSED(cudaErrorInvalidValue, cudaCreateSurfaceObject(&object, &resource));
  resource.resType = cudaResourceTypeMipmappedArray;
  REFUSED(cudaErrorNotSupported, cudaCreateTextureObject(&object, &resource, &texture, nullptr));
  TRY(cudaDestroyTextureObject(0));
  // What is destroyed stays known as such, however often.
  resource.resType = cudaResourceTypeArray;
  texture.filterMode = cudaFilterModePoint;
  cudaTextureObject_t objects[9];
  for (auto& one : objects) TRY(cudaCreateTextureObject(&one, &resource, &texture, nullptr));
  for (auto& one : objects) TRY(cudaDestroyTextureObject(one));
  for (auto& one : objects) REFUSED(cudaErrorInvalidResourceHandle, cudaDestroyTextureObject(one));
  TRY(cudaFreeArray(array));
  TRY(cudaFreeArray(nullptr));
  cudaMemcpy3DParms copy{};
  copy.srcArray = copy.dstArray = array;
  REFUSED(cudaErrorInvalidValue, cudaMemcpy3D(&copy));
  return cudaFreeArray(array) == cudaErrorInvalidValue ? nullptr : "cudaFreeArray";
}
