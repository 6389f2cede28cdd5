// cub's functions over whole arrays, as programs call them: first for the size of temporary memory. Each
// function returns what failed, or null.
#include <cub/cub.cuh>

#define CALL(function, ...)                                                         \
  do {                                                                              \
    size_t bytes = 0;                                                               \
    void* temporary = nullptr;                                                      \
    if (function(nullptr, bytes, __VA_ARGS__) != cudaSuccess) return #function;     \
    if (bytes == 0 || cudaMalloc(&temporary, bytes) != cudaSuccess) return "size";  \
    if (function(temporary, bytes, __VA_ARGS__) != cudaSuccess) return #function;   \
    cudaFree(temporary);                                                            \
  } while (0)

struct Product {
  __device__ long operator()(long a, long b) const { return a * b; }
};
struct IsOdd {
  __device__ bool operator()(int x) const { return x % 2 != 0; }
};
struct Square {
  __device__ long operator()(int x) const { return static_cast<long>(x) * x; }
};

// out: [9]: sum, largest, smallest, product from 3 on, place and value of the least, sum of squares, sum of 0
// to n - 1, sum of n fives
extern "C" const char* reductions(const int* x, int n, long* out, cudaStream_t stream) {
  CALL(cub::DeviceReduce::Sum, x, out, n, stream);
  CALL(cub::DeviceReduce::Max, x, out + 1, n, stream);
  CALL(cub::DeviceReduce::Min, x, out + 2, n, stream);
  CALL(cub::DeviceReduce::Reduce, x, out + 3, n, Product(), 3L, stream);
  auto* const pair = reinterpret_cast<cub::KeyValuePair<long, long>*>(out + 4);
  CALL(cub::DeviceReduce::ArgMin, x, pair, n, stream);
  cub::TransformInputIterator<long, Square, const int*> squares(x, Square());
  CALL(cub::DeviceReduce::Sum, squares, out + 6, n, stream);
  CALL(cub::DeviceReduce::Sum, cub::CountingInputIterator<long>(0), out + 7, n, stream);
  CALL(cub::DeviceReduce::Sum, cub::ConstantInputIterator<long>(5), out + 8, n, stream);
  return nullptr;
}

// out: [6, n]: sums with and without the own one, the largest from 4 on, sums in place, and of runs of keys
extern "C" const char* scans(const int* x, const int* keys, int n, int* out, cudaStream_t stream) {
  CALL(cub::DeviceScan::InclusiveSum, x, out, n, stream);
  CALL(cub::DeviceScan::ExclusiveSum, x, out + n, n, stream);
  CALL(cub::DeviceScan::ExclusiveScan, x, out + 2 * n, cub::Max(), 4, n, stream);
  cudaMemcpyAsync(out + 3 * n, x, n * sizeof(int), cudaMemcpyDeviceToDevice, stream);
  CALL(cub::DeviceScan::InclusiveSum, out + 3 * n, n, stream);
  CALL(cub::DeviceScan::InclusiveSumByKey, keys, x, out + 4 * n, n, cub::Equality(), stream);
  CALL(cub::DeviceScan::ExclusiveScanByKey, keys, x, out + 5 * n, cub::Sum(), 7, n, cub::Equality(), stream);
  return nullptr;
}

// out: [4, n], counts: [4]: flagged, odd, first of runs, odd ones first; runs and their lengths, sums: [3, n]
extern "C" const char* selections(const int* x, const int* keys, int n, int* out, int* counts, int* runs) {
  CALL(cub::DeviceSelect::Flagged, x, keys, out, counts, n);
  CALL(cub::DeviceSelect::If, x, out + n, counts + 1, n, IsOdd());
  CALL(cub::DeviceSelect::UniqueByKey, keys, x, cub::DiscardOutputIterator<>(), out + 2 * n, counts + 2, n);
  CALL(cub::DevicePartition::If, x, out + 3 * n, counts + 3, n, IsOdd());
  CALL(cub::DeviceRunLengthEncode::Encode, keys, runs, runs + n, counts + 2, n);
  CALL(cub::DeviceReduce::ReduceByKey, keys, runs, x, runs + 2 * n, counts + 2, cub::Sum(), n);
  return nullptr;
}

// out: [4, n], places: [n]: ascending, descending, by bits 4 to 7, segments
extern "C" const char* sorts(const float* x, const int* ints, const int* offsets, int segments, int n, float* out,
                             int* sorted, long* places) {
  CALL(cub::DeviceRadixSort::SortKeys, x, out, n);
  CALL(cub::DeviceRadixSort::SortKeysDescending, x, out + n, n);
  CALL(cub::DeviceRadixSort::SortKeys, ints, sorted, n, 4, 8);
  CALL(cub::DeviceSegmentedRadixSort::SortKeys, x, out + 2 * n, n, segments, offsets, offsets + 1);
  long* numbers = nullptr;
  cudaMalloc(&numbers, n * sizeof(long));
  cub::DeviceFor::Bulk(n, [numbers] __device__(int i) { numbers[i] = i; });
  cudaMemcpy(out + 3 * n, x, n * sizeof(float), cudaMemcpyDeviceToDevice);
  float* other = nullptr;
  cudaMalloc(&other, n * sizeof(float));
  cub::DoubleBuffer<float> keys(out + 3 * n, other);
  cub::DoubleBuffer<long> values(numbers, places);
  CALL(cub::DeviceRadixSort::SortPairs, keys, values, n);
  if (values.Current() != places || keys.Current() != other) return "selector";
  cudaMemcpy(out + 3 * n, keys.Current(), n * sizeof(float), cudaMemcpyDeviceToDevice);
  cudaFree(numbers);
  cudaFree(other);
  return nullptr;
}

// sums, largest: [segments]; even: [8] of -2 to 2, range: [3]
extern "C" const char* segments_and_histograms(const float* x, const int* offsets, int segments, int n, float* sums,
                                               float* largest, int* even, const float* levels, int* range) {
  CALL(cub::DeviceSegmentedReduce::Sum, x, sums, segments, offsets, offsets + 1);
  CALL(cub::DeviceSegmentedReduce::Max, x, largest, segments, offsets, offsets + 1);
  CALL(cub::DeviceHistogram::HistogramEven, x, even, 9, -2.f, 2.f, n);
  CALL(cub::DeviceHistogram::HistogramRange, x, range, 4, levels, n);
  return nullptr;
}
