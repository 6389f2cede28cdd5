// What lanes do with arrays of items: loads, stores, exchanges, sorts.
#pragma once

#include <algorithm>
#include <vector>

#include "cub/warp/warp_reduce.cuh"

namespace cub {
namespace loom_detail {

template <int N, int Items>
static inline int place_of(int i, bool is_striped) {
  return is_striped ? group_rank<N>() + i * N : group_rank<N>() * Items + i;
}

}  // namespace loom_detail

template <typename T, int Items, WarpLoadAlgorithm kAlgorithm = WARP_LOAD_DIRECT, int N = 32, int = 0>
class WarpLoad {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpLoad() = default;
  explicit WarpLoad(TempStorage&) {}
  template <typename Iterator>
  void Load(Iterator from, T (&items)[Items]) {
    for (int i = 0; i < Items; ++i) items[i] = from[place(i)];
  }
  template <typename Iterator>
  void Load(Iterator from, T (&items)[Items], int num_valid) {
    for (int i = 0; i < Items; ++i) {
      if (place(i) < num_valid) items[i] = from[place(i)];
    }
  }
  template <typename Iterator, typename Default>
  void Load(Iterator from, T (&items)[Items], int num_valid, Default other) {
    for (int i = 0; i < Items; ++i) {
      items[i] = place(i) < num_valid ? static_cast<T>(from[place(i)]) : static_cast<T>(other);
    }
  }

 private:
  static int place(int i) { return loom_detail::place_of<N, Items>(i, kAlgorithm == WARP_LOAD_STRIPED); }
};

template <typename T, int Items, WarpStoreAlgorithm kAlgorithm = WARP_STORE_DIRECT, int N = 32, int = 0>
class WarpStore {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpStore() = default;
  explicit WarpStore(TempStorage&) {}
  template <typename Iterator>
  void Store(Iterator to, T (&items)[Items], int num_valid = N * Items) {
    for (int i = 0; i < Items; ++i) {
      const int at = loom_detail::place_of<N, Items>(i, kAlgorithm == WARP_STORE_STRIPED);
      if (at < num_valid) to[at] = items[i];
    }
  }
};

enum WarpExchangeAlgorithm { WARP_EXCHANGE_SMEM, WARP_EXCHANGE_SHUFFLE };
template <typename T, int Items, int N = 32, int = 0, WarpExchangeAlgorithm = WARP_EXCHANGE_SMEM>
class WarpExchange {
 public:
  struct alignas(16) TempStorage {
    Uninitialized<T> items[N * Items];
  };
  WarpExchange() = delete;
  explicit WarpExchange(TempStorage& storage) : storage_(storage) {}
  template <typename U>
  void BlockedToStriped(const T (&in)[Items], U (&out)[Items]) {
    move(in, out, [](int i) { return place(i, false); }, true);
  }
  template <typename U>
  void StripedToBlocked(const T (&in)[Items], U (&out)[Items]) {
    move(in, out, [](int i) { return place(i, true); }, false);
  }
  template <typename U, typename R>
  void ScatterToStriped(const T (&in)[Items], U (&out)[Items], R (&ranks)[Items]) {
    move(in, out, [&](int i) { return static_cast<int>(ranks[i]); }, true);
  }
  template <typename R>
  void ScatterToStriped(T (&items)[Items], R (&ranks)[Items]) {
    ScatterToStriped(items, items, ranks);
  }

 private:
  static int place(int i, bool is_striped) { return loom_detail::place_of<N, Items>(i, is_striped); }
  template <typename U, typename From>
  void move(const T (&in)[Items], U (&out)[Items], From&& from, bool is_striped) {
    for (int i = 0; i < Items; ++i) {
      const int at = from(i);
      if (at >= 0 && at < N * Items) storage_.items[at].Alias() = in[i];
    }
    __syncwarp(loom_detail::group_mask<N>());
    for (int i = 0; i < Items; ++i) out[i] = storage_.items[place(i, is_striped)].Alias();
    __syncwarp(loom_detail::group_mask<N>());
  }
  TempStorage& storage_;
};

template <typename K, int Items, int N = 32, typename V = NullType, int = 1>
class WarpMergeSort {
 public:
  struct alignas(16) TempStorage : Uninitialized<char> {};
  WarpMergeSort() = default;
  explicit WarpMergeSort(TempStorage&) {}

  template <typename Less>
  void StableSort(K (&keys)[Items], Less is_less) {
    sort(keys, nullptr, is_less, N * Items);
  }
  template <typename Less>
  void StableSort(K (&keys)[Items], V (&values)[Items], Less is_less) {
    sort(keys, values, is_less, N * Items);
  }
  // Behind `num_valid` items stands `other`.
  template <typename Less>
  void StableSort(K (&keys)[Items], Less is_less, int num_valid, K other) {
    sort(keys, nullptr, is_less, num_valid);
    pad(keys, num_valid, other);
  }
  template <typename Less>
  void StableSort(K (&keys)[Items], V (&values)[Items], Less is_less, int num_valid, K other) {
    sort(keys, values, is_less, num_valid);
    pad(keys, num_valid, other);
  }
  template <typename... A>
  void Sort(K (&keys)[Items], A&&... rest) {
    StableSort(keys, rest...);
  }

 private:
  template <typename Less>
  struct Given {
    K* keys;
    V* values;
    Less* is_less;
    int num_valid;
  };
  template <typename Less>
  static void sort_lanes(void* const* given, unsigned lanes) {
    const loom_cuda::Unchecked own_memory;
    struct Item {
      K key;
      V value;
    };
    std::vector<Item> items;
    const Given<Less>* last = nullptr;
    for (unsigned l = 0; l < 32; ++l) {
      if ((lanes >> l & 1) == 0) continue;
      last = static_cast<const Given<Less>*>(given[l]);
      for (int i = 0; i < Items; ++i)
        items.push_back({last->keys[i], last->values != nullptr ? last->values[i] : V()});
    }
    const auto valid = std::min(items.size(), static_cast<size_t>(last->num_valid));
    std::stable_sort(items.begin(), items.begin() + static_cast<ptrdiff_t>(valid),
                     [&](const Item& a, const Item& b) { return (*last->is_less)(a.key, b.key); });
    size_t at = 0;
    for (unsigned l = 0; l < 32; ++l) {
      if ((lanes >> l & 1) == 0) continue;
      const auto* own = static_cast<const Given<Less>*>(given[l]);
      for (int i = 0; i < Items; ++i, ++at) {
        own->keys[i] = items[at].key;
        if (own->values != nullptr) own->values[i] = items[at].value;
      }
    }
  }
  template <typename Less>
  static void sort(K* keys, V* values, Less& is_less, int num_valid) {
    Given<Less> own{keys, values, &is_less, num_valid};
    loom_cuda::meet(loom_detail::group_mask<N>(), own, &sort_lanes<Less>);
  }
  static void pad(K (&keys)[Items], int num_valid, const K& other) {
    for (int i = 0; i < Items; ++i) {
      if (loom_detail::place_of<N, Items>(i, false) >= num_valid) keys[i] = other;
    }
  }
};

}  // namespace cub
