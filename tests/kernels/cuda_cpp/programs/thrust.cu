// thrust as programs use it: on pointers of PyTorch, on vectors, by iterators.
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/reverse_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/random.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

using namespace thrust::placeholders;
struct IsOdd {
  __host__ __device__ bool operator()(int x) const { return x % 2 != 0; }
};

// out: [6, n]: sorted, 2 x + y, sums, sums from the end, sums of runs, x at the places of the sorted ones
extern "C" void on_pointers(int* x, int* y, int* keys, int n, int* out, cudaStream_t stream) {
  const auto policy = thrust::cuda::par.on(stream);
  thrust::copy(policy, x, x + n, out);
  thrust::device_vector<int> places(n);
  cudaStreamSynchronize(nullptr);
  thrust::sequence(policy, places.begin(), places.end());
  thrust::sort_by_key(policy, out, out + n, places.begin());
  thrust::transform(policy, x, x + n, y, out + n, 2 * _1 + _2);
  thrust::inclusive_scan(policy, x, x + n, out + 2 * n);
  thrust::inclusive_scan(policy, thrust::make_reverse_iterator(x + n), thrust::make_reverse_iterator(x),
                         thrust::make_reverse_iterator(out + 4 * n));
  thrust::inclusive_scan_by_key(policy, keys, keys + n, x, out + 4 * n);
  thrust::gather(policy, places.begin(), places.end(), x, out + 5 * n);
}

// out: [8]: sum, largest, number of odd ones, place of the least, x y, sum of squares, whether all are under
// 1000, where 50 would stand in the sorted ones
extern "C" void numbers(int* x, int* y, int n, long* out) {
  thrust::device_ptr<int> first(x), other(y);
  const thrust::host_vector<int> copy(first, first + n);
  out[0] = thrust::reduce(copy.begin(), copy.end(), 0L);
  out[1] = *thrust::max_element(first, first + n);
  out[2] = thrust::count_if(first, first + n, IsOdd());
  out[3] = thrust::min_element(first, first + n) - first;
  out[4] = thrust::inner_product(first, first + n, other, 0L);
  out[5] = thrust::transform_reduce(first, first + n, thrust::square<long>(), 0L, thrust::plus<long>());
  out[6] = thrust::all_of(first, first + n, _1 < 1000);
  thrust::device_vector<int> sorted(copy);
  thrust::sort(sorted.begin(), sorted.end());
  out[7] = thrust::lower_bound(sorted.begin(), sorted.end(), 50) - sorted.begin();
}

// Each returns how many it leaves: out: [7, n]
extern "C" void selections(int* x, int* keys, int n, int* out, long* counts) {
  const auto policy = thrust::device;
  const auto row = [&](int i) { return out + i * n; };
  counts[0] = thrust::copy_if(policy, x, x + n, row(0), IsOdd()) - row(0);
  thrust::copy(policy, x, x + n, row(1));
  counts[1] = thrust::remove_if(policy, row(1), row(2), IsOdd()) - row(1);
  thrust::copy(policy, keys, keys + n, row(2));
  counts[2] = thrust::unique(policy, row(2), row(3)) - row(2);
  counts[3] = thrust::reduce_by_key(policy, keys, keys + n, x, thrust::make_discard_iterator(), row(3)).second - row(3);
  thrust::copy(policy, x, x + n, row(4));
  counts[4] = thrust::stable_partition(policy, row(4), row(5), IsOdd()) - row(4);
  const auto numbers = thrust::make_counting_iterator(0);
  counts[5] = thrust::copy_if(policy, numbers, numbers + n, x, row(5), IsOdd()) - row(5);
  counts[6] = thrust::set_difference(policy, numbers, numbers + n, thrust::make_constant_iterator(3),
                                     thrust::make_constant_iterator(3) + 1, row(6)) - row(6);
}

// Sorts by y and then by x, and counts what is equal in both, through zipped vectors.
extern "C" int zipped(int* x, int* y, int n) {
  const auto from = thrust::device_pointer_cast(x), other = thrust::device_pointer_cast(y);
  thrust::device_vector<int> a(from, from + n), b(n);
  thrust::copy(other, other + n, b.begin());
  const auto first = thrust::make_zip_iterator(thrust::make_tuple(b.begin(), a.begin()));
  thrust::sort(first, first + n);
  const auto tail = thrust::unique(first, first + n);
  thrust::for_each(first, tail, [] __device__(auto pair) { thrust::get<0>(pair) *= 2; });
  thrust::copy(b.begin(), b.end(), other);
  thrust::copy(a.begin(), a.end(), from);
  return static_cast<int>(tail - first);
}

// Returns the first line that finds something wrong, or 0.
extern "C" int vectors() {
#define EXPECT(condition) \
  if (!(condition)) return __LINE__
  thrust::host_vector<int> host(4, 7);
  host[1] = 3;
  thrust::device_vector<int> device = host;
  EXPECT(device.size() == 4 && device[1] == 3 && device.back() == 7);
  device[2] += 5;
  device.push_back(9);
  EXPECT(device[2] == 12 && device.size() == 5 && host[2] == 7);
  device.resize(7, -1);
  EXPECT(device[6] == -1 && device[4] == 9);
  device.erase(device.begin());
  device.insert(device.begin() + 1, 100);
  EXPECT(device[0] == 3 && device[1] == 100 && device[2] == 12);
  host = device;
  EXPECT(host == device && host.size() == 7);
  const thrust::device_vector<int> other(device.begin(), device.begin() + 2);
  EXPECT(other[1] == 100 && *thrust::raw_pointer_cast(host.data()) == 3);
  thrust::device_vector<float> zeros(3);
  EXPECT(thrust::count(zeros.begin(), zeros.end(), 0.f) == 3);
  thrust::device_vector<int> places{2, 0};
  const auto chosen = thrust::make_permutation_iterator(device.begin(), places.begin());
  EXPECT(chosen[0] == 12 && chosen[1] == 3);
  chosen[1] = 8;
  EXPECT(device[0] == 8);
  const auto doubled = thrust::make_transform_iterator(device.begin(), _1 * 2);
  EXPECT(doubled[1] == 200);
  const thrust::tuple<int, float> pair = thrust::make_tuple(1, 2.f);
  EXPECT(thrust::get<1>(pair) == 2.f);
  int one;
  float two;
  thrust::tie(one, two) = pair;
  EXPECT(one == 1 && two == 2.f);
  int plain[3] = {3, 1, 2};
  thrust::sort(plain, plain + 3, thrust::greater<int>());
  EXPECT(plain[0] == 3 && plain[2] == 1);
  thrust::default_random_engine engine;
  EXPECT(engine() == 48271);
  try {
    thrust::device_vector<char> much(size_t{1} << 50);
    return __LINE__;
  } catch (const std::bad_alloc&) {
    cudaGetLastError();
  }
  return 0;
}

// In a kernel each thread computes its own.
__global__ void in_kernel(const int* x, int* out, int n) {
  const int* row = x + threadIdx.x * n;
  int sorted[16];
  thrust::copy(thrust::seq, row, row + n, sorted);
  thrust::sort(thrust::seq, sorted, sorted + n);
  const auto pair = thrust::make_tuple(sorted[0], thrust::reduce(thrust::seq, row, row + n));
  out[2 * threadIdx.x] = thrust::get<0>(pair);
  out[2 * threadIdx.x + 1] = thrust::get<1>(pair);
}
extern "C" void run_in_kernel(const int* x, int* out, int rows, int n) { in_kernel<<<1, rows>>>(x, out, n); }

extern "C" void random_numbers(float* uniform, int* dice, float* normal, int n) {
  const auto first = thrust::make_counting_iterator(0);
  thrust::for_each(thrust::device, first, first + n, [=] __device__(int i) {
    thrust::default_random_engine engine(1 + i);
    engine.discard(10);
    uniform[i] = thrust::uniform_real_distribution<float>(-1, 1)(engine);
    dice[i] = thrust::uniform_int_distribution<int>(1, 6)(engine);
    normal[i] = thrust::normal_distribution<float>(3, 2)(engine);
  });
}
