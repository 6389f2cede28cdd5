#include "torch/cuda/values/ties.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/median.h>
#include <ATen/ops/mode.h>
#include <ATen/ops/nanmedian.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

constexpr int64_t kNetworkSize = 32;

// A slice of up to 32 keys, sorted by Batcher's network for 32, which is not stable: what is equal may change
// places. A swap is made where "goes before" is not what the direction says.
template <typename T, typename Before>
void sort_by_network(T* keys, int64_t* places, int64_t count, const Before& goes_before) {
  constexpr size_t kSize = kNetworkSize;
  std::array<bool, kSize> valid{};
  std::fill_n(valid.begin(), count, true);
  const auto exchange = [&](size_t stride, auto direction_of) {
    for (size_t thread = 0; thread < kSize / 2; ++thread) {
      const size_t a = 2 * thread - (thread & (stride - 1)), b = a + stride;
      const bool is_ordered = (goes_before(keys[a], keys[b]) && valid[a]) || !valid[b];
      if (is_ordered != direction_of(thread)) continue;
      std::swap(keys[a], keys[b]);
      std::swap(places[a], places[b]);
      std::swap(valid[a], valid[b]);
    }
  };
  for (size_t size = 2; size < kSize; size *= 2) {
    for (size_t stride = size / 2; stride > 0; stride /= 2)
      exchange(stride, [&](size_t thread) { return (thread & (size / 2)) != 0; });
  }
  for (size_t stride = kSize / 2; stride > 0; stride /= 2) exchange(stride, [](size_t) { return false; });
}

// NaN is larger than all numbers.
template <typename T>
bool is_larger(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a_is_nan || b_is_nan) return a_is_nan && !b_is_nan;
  }
  return a > b;
}

template <typename T>
void sort_small(T* keys, int64_t* places, int64_t count, bool descending) {
  std::array<T, kNetworkSize> own_keys{};
  std::array<int64_t, kNetworkSize> own_places{};
  std::copy_n(keys, count, own_keys.begin());
  std::copy_n(places, count, own_places.begin());
  sort_by_network(own_keys.data(), own_places.data(), count,
                  [&](T a, T b) { return descending ? is_larger(a, b) : is_larger(b, a); });
  std::copy_n(own_keys.begin(), count, keys);
  std::copy_n(own_places.begin(), count, places);
}

// The dimension is moved to the end.
struct Slices {
  Slices(const Tensor& self, int64_t dim, int64_t kept)
      : dim(c10::maybe_wrap_dim(dim, self.dim())), rows(self.movedim(this->dim, -1).contiguous()) {
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes.back() = kept;
    values = at::empty(sizes, self.options());
    places = at::empty(sizes, self.options().dtype(at::kLong));
  }
  Tensors results() const {
    return {values.movedim(-1, dim).contiguous(), places.movedim(-1, dim).contiguous()};
  }
  int64_t size() const { return rows.size(-1); }
  int64_t count() const { return size() == 0 ? 0 : rows.numel() / size(); }

  const int64_t dim;
  const Tensor rows;
  Tensor values, places;
};

}  // namespace

// (self, dim, descending) or (self, stable, dim, descending), and two outs.
Tensors sort_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  const bool names_stable = arguments.size() == 4 || arguments.size() == 6;
  const c10::IValue& dim = arguments[names_stable ? 2 : 1];
  if (!dim.isInt()) return {};
  const bool is_stable = names_stable && arguments[1].isBool() && arguments[1].toBool();
  if (self.is_meta() || is_stable || self.dim() == 0 || self.is_complex()) return {};
  const int64_t size = self.size(dim.toInt());
  const bool descending = arguments[names_stable ? 3 : 2].toBool();
  if (size < 2) return {};
  if (size > kNetworkSize) {
    auto [values, places] = at::sort(self, /*stable=*/true, dim.toInt(), descending);
    return {values, places};
  }
  Slices slices(self, dim.toInt(), size);
  slices.values.copy_(slices.rows);
  slices.places.copy_(at::arange(size, slices.places.options()).expand(slices.places.sizes()));
  AT_DISPATCH_V2(self.scalar_type(), "sort_cuda", AT_WRAP([&] {
                   auto* const keys = slices.values.mutable_data_ptr<scalar_t>();
                   auto* const places = slices.places.mutable_data_ptr<int64_t>();
                   at::parallel_for(0, slices.count(), 1 << 10, [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row)
                       sort_small(keys + row * size, places + row * size, size, descending);
                   });
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16,
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  Tensors results = slices.results();
  if (self.is_contiguous()) return results;
  for (Tensor& result : results) result = at::empty_like(self, result.options()).copy_(result);
  return results;
}

// (self, k, dim, largest, sorted): what lies beyond the k-th value comes first, in the order of indices,
// then what equals it; few are then sorted by the network, more by a stable sort.
Tensors top_of_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  const int64_t count = arguments[1].toInt(), dim = arguments[2].toInt();
  if (self.is_meta() || self.dim() == 0 || self.is_complex() || self.numel() == 0) return {};
  if (dim < -self.dim() || dim >= self.dim() || count < 1 || count > self.size(dim)) return {};
  const bool largest = arguments[3].toBool(), sorted = arguments[4].toBool();
  Slices slices(self, dim, count);
  const int64_t size = slices.size();
  AT_DISPATCH_V2(self.scalar_type(), "topk_cuda", AT_WRAP([&] {
                   const auto before = [&](scalar_t a, scalar_t b) {
                     return largest ? is_larger(a, b) : is_larger(b, a);
                   };
                   const auto* const rows = slices.rows.const_data_ptr<scalar_t>();
                   at::parallel_for(0, slices.count(), 1, [&](int64_t begin, int64_t end) {
                     std::vector<scalar_t> ordered(static_cast<size_t>(size));
                     for (int64_t row = begin; row < end; ++row) {
                       const scalar_t* const own = rows + row * size;
                       std::copy_n(own, size, ordered.begin());
                       std::nth_element(ordered.begin(), ordered.begin() + (count - 1), ordered.end(),
                                        before);
                       const scalar_t limit = ordered[static_cast<size_t>(count - 1)];
                       auto* const values = slices.values.template mutable_data_ptr<scalar_t>() + row * count;
                       auto* const places = slices.places.template mutable_data_ptr<int64_t>() + row * count;
                       int64_t found = 0;
                       for (int64_t i = 0; i < size && found < count; ++i) {
                         if (before(own[i], limit)) places[found++] = i;
                       }
                       for (int64_t i = 0; i < size && found < count; ++i) {
                         if (!before(own[i], limit) && !before(limit, own[i])) places[found++] = i;
                       }
                       if (sorted && count > kNetworkSize)
                         std::stable_sort(places, places + count,
                                          [&](int64_t a, int64_t b) { return before(own[a], own[b]); });
                       for (int64_t i = 0; i < count; ++i) values[i] = own[places[i]];
                       if (sorted && count > 1 && count <= kNetworkSize)
                         sort_small(values, places, count, largest);
                     }
                   });
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return slices.results();
}

namespace {

constexpr int64_t kHalfOfWarp = 16, kThreadsOfWarp = 32;
constexpr int64_t kSharedMode = 2048;  // the longest slice whose mode one block finds

// The first place in this range that has the value; `end`: none.
template <typename HasValue>
int64_t first_place(int64_t begin, int64_t end, const HasValue& has_value) {
  while (begin < end && !has_value(begin)) ++begin;
  return std::min(begin, end);
}

// Sets each place of a result to one of those where its value lies, which `choose` finds in a slice of a
// size; leaves it where that finds none.
template <typename Choose>
void choose_places(const Tensor& self, int64_t dim, bool keeps, const Tensor& values, const Tensor& places,
                   const Choose& choose) {
  const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
  const auto innermost = [&](const Tensor& result) {
    return (keeps ? result : result.unsqueeze(wrapped)).movedim(wrapped, -1);
  };
  const Tensor chosen = innermost(places), in_order = chosen.contiguous();
  const Tensor wanted = innermost(values).contiguous(), slices = self.movedim(wrapped, -1).contiguous();
  const int64_t size = slices.size(-1);
  AT_DISPATCH_V2(self.scalar_type(), "places_cuda", AT_WRAP([&] {
                   const auto* const rows = slices.const_data_ptr<scalar_t>();
                   const auto* const of_rows = wanted.const_data_ptr<scalar_t>();
                   auto* const found = in_order.mutable_data_ptr<int64_t>();
                   const int64_t count = in_order.numel();
                   at::parallel_for(0, count, 1 + (1 << 14) / size, [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       const scalar_t* const own = rows + row * size;
                       const scalar_t value = of_rows[row];
                       const int64_t place = choose(size, [&](int64_t i) {
                         return !is_larger(own[i], value) && !is_larger(value, own[i]);
                       });
                       if (place >= 0 && place < size) found[row] = place;
                     }
                   });
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  if (!chosen.is_same(in_order)) chosen.copy_(in_order);
}

// Threads of a warp write at once, those of its second half last; of each half the first is left. Which of
// several warps is the last is a matter of chance on a card: here it is the first that has one.
template <typename HasValue>
int64_t left_by_warps(int64_t size, const HasValue& has_value) {
  const int64_t first = first_place(0, size, has_value);
  const int64_t warp = first / kThreadsOfWarp * kThreadsOfWarp, end = std::min(size, warp + kThreadsOfWarp);
  const int64_t in_second_half = first_place(warp + kHalfOfWarp, end, has_value);
  return in_second_half < end ? in_second_half : first;
}

bool has_places(const Tensor& self, const c10::IValue& dim) {
  return dim.isInt() && !self.is_meta() && self.dim() > 0 && self.numel() > 0 && !self.is_complex() &&
         self.layout() == c10::kStrided && self.scalar_type() != at::kBool;
}

// Which of two equally frequent values is the mode: each thread has two neighbours of the sorted slice, and
// halves of a warp, then of warps, are compared; the lower one stays.
int64_t rank_of_mode(int64_t last_place) {
  const auto reversed = [](int64_t bits) {
    int64_t found = 0;
    for (int64_t bit = 1; bit < kThreadsOfWarp; bit *= 2) found = found * 2 + ((bits & bit) != 0 ? 1 : 0);
    return found;
  };
  const int64_t thread = last_place / 2;
  return (reversed(thread / kThreadsOfWarp) * kThreadsOfWarp + reversed(thread % kThreadsOfWarp)) * 2 +
         last_place % 2;
}

}  // namespace

// (self, k, dim, keepdim), and two outs.
Tensors kth_of_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (arguments.size() < 4 || !arguments[1].isInt() || !has_places(self, arguments[2])) return {};
  const int64_t dim = arguments[2].toInt();
  auto [values, places] = at::kthvalue(self, arguments[1].toInt(), dim, arguments[3].toBool());
  choose_places(self, dim, arguments[3].toBool(), values, places,
                [](int64_t size, const auto& has_value) { return first_place(0, size, has_value); });
  return {values, places};
}

// (self, dim, keepdim), and two outs; without a dimension there are no places.
template <bool kSkipsNan>
Tensors median_of_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (arguments.size() < 3 || !has_places(self, arguments[1])) return {};
  const int64_t dim = arguments[1].toInt();
  const bool keeps = arguments[2].toBool();
  // Of slices with a stride of 0, as expand() makes them, the engine's kernel reads beyond the memory.
  const Tensor slices = self.contiguous();
  auto [values, places] = kSkipsNan ? at::nanmedian(slices, dim, keeps) : at::median(slices, dim, keeps);
  choose_places(self, dim, keeps, values, places,
                [](int64_t size, const auto& has_value) { return left_by_warps(size, has_value); });
  return {values, places};
}
template Tensors median_of_slices<false>(Arguments arguments);
template Tensors median_of_slices<true>(Arguments arguments);

// (self, dim, keepdim), and two outs.
Tensors mode_of_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (arguments.size() < 3 || !has_places(self, arguments[1])) return {};
  if (self.is_floating_point() && self.isnan().any().item<bool>()) return {};
  const int64_t dim = arguments[1].toInt();
  const bool keeps = arguments[2].toBool();
  Slices slices(self, dim, 1);
  const Tensor sorted = std::get<0>(slices.rows.sort(-1));
  const int64_t size = slices.size();
  const bool is_shared = size <= kSharedMode;
  AT_DISPATCH_V2(self.scalar_type(), "mode_cuda", AT_WRAP([&] {
                   const auto* const rows = sorted.const_data_ptr<scalar_t>();
                   auto* const values = slices.values.mutable_data_ptr<scalar_t>();
                   for (int64_t row = 0; row < slices.count(); ++row) {
                     const scalar_t* const own = rows + row * size;
                     int64_t most = 0, rank = 0;
                     for (int64_t begin = 0, end = 0; begin < size; begin = end) {
                       while (end < size && own[end] == own[begin]) ++end;
                       const int64_t own_rank = is_shared ? rank_of_mode(end - 1) : 0;
                       if (end - begin < most || (end - begin == most && own_rank >= rank)) continue;
                       most = end - begin;
                       rank = own_rank;
                       values[row] = own[begin];
                     }
                   }
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  Tensor values = slices.values.movedim(-1, slices.dim), places = slices.places.movedim(-1, slices.dim);
  choose_places(self, dim, /*keeps=*/true, values, places, [&](int64_t length, const auto& has_value) {
    if (!is_shared) return first_place(0, length, has_value);
    while (--length >= 0 && !has_value(length)) {
    }
    return length;
  });
  if (keeps) return {values, places};
  return {values.squeeze(slices.dim), places.squeeze(slices.dim)};
}

}  // namespace loom::glue
