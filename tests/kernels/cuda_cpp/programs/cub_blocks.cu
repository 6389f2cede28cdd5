// What cub does in a block and in a warp, one kernel each. Blocks have 64 threads, with 3 items each.
#include <cub/cub.cuh>

constexpr int kThreads = 64, kItems = 3, kCount = kThreads * kItems;
struct Differ {
  __device__ bool operator()(int a, int b) const { return a != b; }
};
struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};
struct Minus {
  __device__ int operator()(int a, int b) const { return a - b; }
};
// f(x) = a x + b, one after the other: does not commute.
struct Compose {
  __device__ int2 operator()(int2 first, int2 second) const {
    return make_int2(first.x * second.x, second.x * first.y + second.y);
  }
};
struct Running {
  int sum;
  __device__ int operator()(int all) {
    const int before = sum;
    sum += all;
    return before;
  }
};

// x: [192]; out: [6, 192]
__global__ void scans(const int* x, int* out) {
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  int items[kItems], results[kItems], all;
  const auto store = [&](int row) { cub::StoreDirectBlocked(threadIdx.x, out + row * kCount, results); };
  cub::LoadDirectBlocked(threadIdx.x, x, items);
  Scan(storage).InclusiveSum(items, results, all);
  store(0);
  Running running{1000};
  Scan(storage).ExclusiveSum(items, results, running);
  store(1);
  Scan(storage).ExclusiveScan(items, results, -5, cub::Max());
  store(2);
  Scan(storage).InclusiveScan(items, results, cub::Max(), all);
  store(3);
  int one;
  Scan(storage).ExclusiveSum(items[0], one, all);
  results[0] = one, results[1] = all;
  Scan(storage).ExclusiveScan(items[0], one, cub::Sum(), running);
  results[2] = one;
  store(4);
  if (threadIdx.x == 0) results[0] = running.sum;
  store(5);
}

__global__ void compositions(const int2* x, int2* out) {
  using Scan = cub::BlockScan<int2, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  int2 own = x[threadIdx.x];
  Scan(storage).InclusiveScan(own, own, Compose());
  out[threadIdx.x] = own;
  using Warp = cub::WarpScan<int2>;
  __shared__ typename Warp::TempStorage warps[2];
  own = x[threadIdx.x];
  Warp(warps[threadIdx.x / 32]).InclusiveScan(own, own, Compose());
  out[kThreads + threadIdx.x] = own;
}

// keys: [192]; out: [4, 192]; places: [2, 192]
__global__ void radix_sorts(const float* keys, float* out, int* places) {
  using Sort = cub::BlockRadixSort<float, kThreads, kItems, int>;
  __shared__ typename Sort::TempStorage storage;
  float items[kItems];
  int values[kItems];
  const auto load = [&] {
    cub::LoadDirectBlocked(threadIdx.x, keys, items);
    for (int i = 0; i < kItems; ++i) values[i] = threadIdx.x * kItems + i;
    __syncthreads();
  };
  load();
  Sort(storage).Sort(items, values);
  cub::StoreDirectBlocked(threadIdx.x, out, items);
  cub::StoreDirectBlocked(threadIdx.x, places, values);
  load();
  Sort(storage).SortDescending(items, values);
  cub::StoreDirectBlocked(threadIdx.x, out + kCount, items);
  cub::StoreDirectBlocked(threadIdx.x, places + kCount, values);
  load();
  Sort(storage).SortBlockedToStriped(items);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, out + 2 * kCount, items);
  using KeysOnly = cub::BlockRadixSort<float, kThreads, kItems>;
  __shared__ typename KeysOnly::TempStorage own;
  load();
  KeysOnly(own).SortDescendingBlockedToStriped(items);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, out + 3 * kCount, items);
}

// By the lower 4 bits alone; of a block and of each warp by an operator; by ranks. out: [4, 192]
__global__ void other_sorts(const int* keys, int* out) {
  using Sort = cub::BlockRadixSort<int, kThreads, kItems>;
  using Merge = cub::BlockMergeSort<int, kThreads, kItems>;
  using Warp = cub::WarpMergeSort<int, kItems>;
  using Rank = cub::BlockRadixRankMatch<kThreads, 4, false>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Merge::TempStorage merge;
    typename Warp::TempStorage warps[2];
    typename Rank::TempStorage rank;
  } storage;
  int items[kItems], ranks[kItems];
  cub::LoadDirectBlocked(threadIdx.x, keys, items);
  Sort(storage.sort).Sort(items, 0, 4);
  cub::StoreDirectBlocked(threadIdx.x, out, items);
  cub::LoadDirectBlocked(threadIdx.x, keys, items);
  Merge(storage.merge).Sort(items, Less(), 100, 1 << 30);
  cub::StoreDirectBlocked(threadIdx.x, out + kCount, items);
  cub::LoadDirectBlocked(threadIdx.x, keys, items);
  Warp(storage.warps[threadIdx.x / 32]).Sort(items, Less());
  cub::StoreDirectBlocked(threadIdx.x, out + 2 * kCount, items);
  cub::LoadDirectWarpStriped(threadIdx.x, keys, items);
  Rank(storage.rank).RankKeys(items, ranks, cub::BFEDigitExtractor<unsigned>(0, 4));
  for (int i = 0; i < kItems; ++i) out[3 * kCount + ranks[i]] = items[i];
}

// x: [192] in 0 ... 7; out: [7, 192]
__global__ void neighbors(const int* x, int* out) {
  using Flags = cub::BlockDiscontinuity<int, kThreads>;
  using Differences = cub::BlockAdjacentDifference<int, kThreads>;
  using Shuffle = cub::BlockShuffle<int, kThreads>;
  __shared__ union {
    typename Flags::TempStorage flags;
    typename Differences::TempStorage differences;
    typename Shuffle::TempStorage shuffle;
  } storage;
  int items[kItems], heads[kItems], tails[kItems], results[kItems];
  cub::LoadDirectBlocked(threadIdx.x, x, items);
  const auto store = [&](int row, int (&values)[kItems]) {
    cub::StoreDirectBlocked(threadIdx.x, out + row * kCount, values);
  };
  Flags(storage.flags).FlagHeads(heads, items, Differ());
  store(0, heads);
  Flags(storage.flags).FlagHeadsAndTails(heads, x[0], tails, x[kCount - 1], items, Differ());
  store(1, heads);
  store(2, tails);
  Differences(storage.differences).SubtractLeft(items, results, Minus());
  store(3, results);
  Differences(storage.differences).SubtractRight(items, results, Minus(), 100);
  store(4, results);
  int last;
  results[0] = 77;
  Shuffle(storage.shuffle).Up(items, results, last);
  store(5, results);
  Shuffle(storage.shuffle).Rotate(items[0], results[0], 5);
  results[1] = last;
  store(6, results);
}

__global__ void histogram(const unsigned char* x, int* counts) {
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kItems, 8>;
  __shared__ typename Histogram::TempStorage storage;
  __shared__ int bins[8];
  unsigned char items[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, x, items);
  Histogram(storage).Histogram(items, bins);
  __syncthreads();
  if (threadIdx.x < 8) counts[threadIdx.x] = bins[threadIdx.x];
}

// x, flags: [64]; out: [8, 64]. Groups of 16 lanes where it says so.
__global__ void warps(const int* x, const int* flags, int* out) {
  using Reduce = cub::WarpReduce<int>;
  using Half = cub::WarpReduce<int, 16>;
  using Scan = cub::WarpScan<int, 16>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Half::TempStorage half;
    typename Scan::TempStorage scan;
  } storage[4];
  const int t = threadIdx.x, own = x[t];
  auto& warp = storage[t / 32];
  auto& half = storage[t / 16];
  out[t] = Reduce(warp.reduce).Sum(own);
  out[kThreads + t] = Half(half.half).Reduce(own, cub::Max(), 5);
  out[2 * kThreads + t] = Reduce(warp.reduce).HeadSegmentedSum(own, flags[t]);
  out[3 * kThreads + t] = Reduce(warp.reduce).TailSegmentedReduce(own, flags[t], cub::Sum());
  int all;
  Scan(half.scan).ExclusiveSum(own, out[4 * kThreads + t], all);
  out[5 * kThreads + t] = all;
  Scan(half.scan).InclusiveScan(own, out[6 * kThreads + t], cub::Max());
  out[7 * kThreads + t] = Scan(half.scan).Broadcast(own, 3);
}

// Striped to blocked and back, in a block and in warps; a load of 100 valid items. out: [4, 192]
__global__ void exchanges(const int* x, int* out) {
  using Exchange = cub::BlockExchange<int, kThreads, kItems>;
  using Warp = cub::WarpExchange<int, kItems>;
  using Load = cub::BlockLoad<int, kThreads, kItems, cub::BLOCK_LOAD_TRANSPOSE>;
  using WarpLoad = cub::WarpLoad<int, kItems, cub::WARP_LOAD_STRIPED>;
  using WarpStore = cub::WarpStore<int, kItems>;
  __shared__ typename Exchange::TempStorage storage;
  __shared__ typename Warp::TempStorage warps[2];
  __shared__ typename Load::TempStorage load;
  int items[kItems], ranks[kItems];
  cub::LoadDirectStriped<kThreads>(threadIdx.x, x, items);
  Exchange(storage).StripedToBlocked(items);
  cub::StoreDirectBlocked(threadIdx.x, out, items);
  for (int i = 0; i < kItems; ++i) ranks[i] = kCount - 1 - (threadIdx.x * kItems + i);
  Exchange(storage).ScatterToStriped(items, ranks);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, out + kCount, items);
  const int base = threadIdx.x / 32 * 32 * kItems;
  WarpLoad().Load(x + base, items);
  Warp(warps[threadIdx.x / 32]).StripedToBlocked(items, items);
  WarpStore().Store(out + 2 * kCount + base, items);
  Load(load).Load(x, items, 100, -1);
  cub::StoreDirectBlocked(threadIdx.x, out + 3 * kCount, items);
}

template <typename T>
__device__ void extremes(double* out) {
  using Traits = cub::Traits<const T>;
  using Bits = typename Traits::UnsignedBits;
  out[0] = double(float(Traits::Max()));
  out[1] = double(float(cub::FpLimits<T>::Lowest()));
  const T values[3] = {T(-2), T(1), T(3)};
  bool is_right = true;
  Bits before = 0;
  for (const T& value : values) {
    Bits bits;
    memcpy(&bits, &value, sizeof(bits));
    const Bits key = Traits::TwiddleIn(bits);
    is_right = is_right && key > before && Traits::TwiddleOut(key) == bits;
    before = key;
  }
  out[2] = is_right;
  out[3] = Traits::CATEGORY;
}

// out: [5, 4]
__global__ void types(double* out) {
  static_assert(cub::Traits<bool>::CATEGORY == cub::UNSIGNED_INTEGER, "");
  static_assert(cub::Traits<float4>::CATEGORY == cub::NOT_A_NUMBER, "");
  static_assert(sizeof(cub::CubVector<float, 4>::Type) == 16, "");
  if (threadIdx.x != 0) return;
  extremes<float>(out);
  extremes<__half>(out + 4);
  extremes<__nv_bfloat16>(out + 8);
  extremes<short>(out + 12);
  extremes<__nv_fp8_e5m2>(out + 16);
}

// What a thread does with items of its own, and what cub calls PTX. out: [64, 8]
__global__ void items(int* out) {
  int x[4] = {int(threadIdx.x), 2, 3, 4}, y[4];
  out += threadIdx.x * 8;
  out[0] = cub::internal::ThreadReduce(x, cub::Sum());
  out[1] = cub::internal::ThreadReduce(x, cub::Sum(), 100);
  out[2] = cub::internal::ThreadScanExclusive(x, y, cub::Sum(), 1);
  out[3] = y[3];
  out[4] = cub::UpperBound(x + 1, 3, int(threadIdx.x));
  out[5] = cub::internal::ThreadScanInclusive(x, x, cub::Max());
  unsigned bits;
  cub::BFI(bits, ~0U, cub::LaneMaskLt(), 4, 8);
  out[6] = int(bits);
  out[7] = int(cub::MatchAny<2>(threadIdx.x)) + cub::CTA_SYNC_OR(threadIdx.x == 3);
}
