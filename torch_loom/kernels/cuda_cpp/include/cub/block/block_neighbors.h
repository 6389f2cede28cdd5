// What threads of a block do with their neighbours' items: flags where values change, differences, shifts.
#pragma once

#include "cub/common.h"

namespace cub {
namespace loom_detail {

// Each thread's first and last item, in shared memory.
template <typename T, int kThreads>
class Neighbors {
 public:
  struct alignas(16) Storage {
    Uninitialized<T> first[kThreads], last[kThreads];
  };
  explicit Neighbors(Storage& storage) : storage_(storage) {}
  static int rank() { return static_cast<int>(loom_cuda::thread_rank()); }

  template <int Items>
  void give(const T (&items)[Items]) {
    storage_.first[rank()].Alias() = items[0];
    storage_.last[rank()].Alias() = items[Items - 1];
    __syncthreads();
  }
  void end() { __syncthreads(); }
  const T& first_of(int thread) { return storage_.first[thread].Alias(); }
  const T& last_of(int thread) { return storage_.last[thread].Alias(); }
  // The item in front of item i, or behind it; null where the block ends and nothing else is given.
  template <int Items>
  const T* before(const T (&items)[Items], int i, const T* outer) {
    if (i > 0) return &items[i - 1];
    return rank() == 0 ? outer : &last_of(rank() - 1);
  }
  template <int Items>
  const T* behind(const T (&items)[Items], int i, const T* outer) {
    if (i < Items - 1) return &items[i + 1];
    return rank() == kThreads - 1 ? outer : &first_of(rank() + 1);
  }

 private:
  Storage& storage_;
};

}  // namespace loom_detail

template <typename T, int X, int Y = 1, int Z = 1, int = 0>
class BlockDiscontinuity {
  static constexpr int kThreads = X * Y * Z;
  using Near = loom_detail::Neighbors<T, kThreads>;

 public:
  using TempStorage = typename Near::Storage;
  BlockDiscontinuity() : near_(own()) {}
  explicit BlockDiscontinuity(TempStorage& storage) : near_(storage) {}

  template <int Items, typename F, typename Op>
  void FlagHeads(F (&heads)[Items], T (&items)[Items], Op op) {
    flag(heads, static_cast<F*>(nullptr), items, op, nullptr, nullptr);
  }
  template <int Items, typename F, typename Op>
  void FlagHeads(F (&heads)[Items], T (&items)[Items], Op op, T before) {
    flag(heads, static_cast<F*>(nullptr), items, op, &before, nullptr);
  }
  template <int Items, typename F, typename Op>
  void FlagTails(F (&tails)[Items], T (&items)[Items], Op op) {
    flag(static_cast<F*>(nullptr), tails, items, op, nullptr, nullptr);
  }
  template <int Items, typename F, typename Op>
  void FlagTails(F (&tails)[Items], T (&items)[Items], Op op, T behind) {
    flag(static_cast<F*>(nullptr), tails, items, op, nullptr, &behind);
  }
  template <int Items, typename F, typename Op>
  void FlagHeadsAndTails(F (&heads)[Items], F (&tails)[Items], T (&items)[Items], Op op) {
    flag(heads, tails, items, op, nullptr, nullptr);
  }
  template <int Items, typename F, typename Op>
  void FlagHeadsAndTails(F (&heads)[Items], F (&tails)[Items], T behind, T (&items)[Items], Op op) {
    flag(heads, tails, items, op, nullptr, &behind);
  }
  template <int Items, typename F, typename Op>
  void FlagHeadsAndTails(F (&heads)[Items], T before, F (&tails)[Items], T (&items)[Items], Op op) {
    flag(heads, tails, items, op, &before, nullptr);
  }
  template <int Items, typename F, typename Op>
  void FlagHeadsAndTails(F (&heads)[Items], T before, F (&tails)[Items], T behind, T (&items)[Items], Op op) {
    flag(heads, tails, items, op, &before, &behind);
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  // Operators may want the second item's number, too.
  template <typename Op>
  static bool differ(Op& op, const T& a, const T& b, int number) {
    if constexpr (requires { op(a, b, number); }) {
      return op(a, b, number);
    } else {
      return op(a, b);
    }
  }
  template <int Items, typename F, typename G, typename Op>
  void flag(F heads, G tails, T (&items)[Items], Op& op, const T* outer_before, const T* outer_behind) {
    near_.give(items);
    for (int i = 0; i < Items; ++i) {
      const int number = Near::rank() * Items + i;
      if (heads != nullptr) {
        const T* other = near_.before(items, i, outer_before);
        heads[i] = other == nullptr || differ(op, *other, items[i], number);
      }
      if (tails != nullptr) {
        const T* other = near_.behind(items, i, outer_behind);
        tails[i] = other == nullptr || differ(op, items[i], *other, number + 1);
      }
    }
    near_.end();
  }
  Near near_;
};

template <typename T, int X, int Y = 1, int Z = 1, int = 0>
class BlockAdjacentDifference {
  static constexpr int kThreads = X * Y * Z;
  using Near = loom_detail::Neighbors<T, kThreads>;

 public:
  using TempStorage = typename Near::Storage;
  BlockAdjacentDifference() : near_(own()) {}
  explicit BlockAdjacentDifference(TempStorage& storage) : near_(storage) {}

  // The first item stays, unless one is given that stands before it.
  template <int Items, typename U, typename Op>
  void SubtractLeft(T (&in)[Items], U (&out)[Items], Op op) {
    subtract<true>(in, out, op, kThreads * Items, nullptr);
  }
  template <int Items, typename U, typename Op>
  void SubtractLeft(T (&in)[Items], U (&out)[Items], Op op, T before) {
    subtract<true>(in, out, op, kThreads * Items, &before);
  }
  template <int Items, typename U, typename Op>
  void SubtractLeftPartialTile(T (&in)[Items], U (&out)[Items], Op op, int num_valid) {
    subtract<true>(in, out, op, num_valid, nullptr);
  }
  template <int Items, typename U, typename Op>
  void SubtractLeftPartialTile(T (&in)[Items], U (&out)[Items], Op op, int num_valid, T before) {
    subtract<true>(in, out, op, num_valid, &before);
  }
  template <int Items, typename U, typename Op>
  void SubtractRight(T (&in)[Items], U (&out)[Items], Op op) {
    subtract<false>(in, out, op, kThreads * Items, nullptr);
  }
  template <int Items, typename U, typename Op>
  void SubtractRight(T (&in)[Items], U (&out)[Items], Op op, T behind) {
    subtract<false>(in, out, op, kThreads * Items, &behind);
  }
  template <int Items, typename U, typename Op>
  void SubtractRightPartialTile(T (&in)[Items], U (&out)[Items], Op op, int num_valid) {
    subtract<false>(in, out, op, num_valid, nullptr);
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  template <bool kIsLeft, int Items, typename U, typename Op>
  void subtract(T (&in)[Items], U (&out)[Items], Op& op, int num_valid, const T* outer) {
    T copies[Items];
    for (int i = 0; i < Items; ++i) copies[i] = in[i];
    near_.give(copies);
    for (int i = 0; i < Items; ++i) {
      const int number = Near::rank() * Items + i;
      const T* other = kIsLeft ? near_.before(copies, i, outer) : near_.behind(copies, i, outer);
      const bool is_last = !kIsLeft && number == num_valid - 1 && num_valid < kThreads * Items;
      if (number >= num_valid || other == nullptr || is_last) {
        out[i] = copies[i];
      } else {
        out[i] = op(copies[i], *other);
      }
    }
    near_.end();
  }
  Near near_;
};

// Where the block ends, nothing is written.
template <typename T, int X, int Y = 1, int Z = 1, int = 0>
class BlockShuffle {
  static constexpr int kThreads = X * Y * Z;
  using Near = loom_detail::Neighbors<T, kThreads>;

 public:
  using TempStorage = typename Near::Storage;
  BlockShuffle() : near_(own()) {}
  explicit BlockShuffle(TempStorage& storage) : near_(storage) {}

  void Offset(T in, T& out, int distance = 1) {
    const int from = Near::rank() + distance;
    one(in, out, from >= 0 && from < kThreads ? from : -1);
  }
  void Rotate(T in, T& out, unsigned distance = 1) {
    one(in, out, static_cast<int>((Near::rank() + distance) % kThreads));
  }
  template <int Items>
  void Up(T (&in)[Items], T (&out)[Items]) {
    near_.give(in);
    for (int i = Items - 1; i > 0; --i) out[i] = in[i - 1];
    if (Near::rank() > 0) out[0] = near_.last_of(Near::rank() - 1);
    near_.end();
  }
  // Also returns the block's last item.
  template <int Items>
  void Up(T (&in)[Items], T (&out)[Items], T& last) {
    Up(in, out);
    last = near_.last_of(kThreads - 1);
    near_.end();
  }
  template <int Items>
  void Down(T (&in)[Items], T (&out)[Items]) {
    near_.give(in);
    for (int i = 0; i < Items - 1; ++i) out[i] = in[i + 1];
    if (Near::rank() < kThreads - 1) out[Items - 1] = near_.first_of(Near::rank() + 1);
    near_.end();
  }
  // Also returns the block's first item.
  template <int Items>
  void Down(T (&in)[Items], T (&out)[Items], T& first) {
    Down(in, out);
    first = near_.first_of(0);
    near_.end();
  }

 private:
  static TempStorage& own() {
    __loom_shared__ TempStorage storage;
    return storage;
  }
  void one(const T& in, T& out, int from) {
    const T items[1] = {in};
    near_.give(items);
    if (from >= 0) out = near_.first_of(from);
    near_.end();
  }
  Near near_;
};

}  // namespace cub
