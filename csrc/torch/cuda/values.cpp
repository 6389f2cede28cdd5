#include "torch/cuda/values.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

bool is_integer(const Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

// The reciprocal is rounded first, then the product.
Tensors divide_by_number(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  const bool is_number = !arguments[1].isTensor();
  if (self.is_meta() || self.is_complex() || self.layout() != c10::kStrided) return {};
  if (!is_number && !arguments[1].toTensor().unsafeGetTensorImpl()->is_wrapped_number()) return {};
  if (is_number ? arguments[1].isComplexDouble() : arguments[1].toTensor().is_complex()) return {};
  const bool truncates = arguments.size() > 2 && arguments[2].isString();
  if (truncates && arguments[2].toStringView() != "trunc") return {};
  if (truncates && !self.is_floating_point()) return {};
  const c10::ScalarType dtype =
      self.is_floating_point() ? self.scalar_type() : c10::typeMetaToScalarType(c10::get_default_dtype());
  const double divisor =
      is_number ? arguments[1].toScalar().toDouble() : arguments[1].toTensor().item<double>();
  const double reciprocal =
      dtype == at::kDouble ? 1.0 / divisor : static_cast<double>(1.0F / static_cast<float>(divisor));
  Tensor result = at::mul(self.to(dtype), reciprocal);
  return {truncates ? result.trunc_() : result};
}

// The kernel computes in the dtype of the result: operands are converted to it first.
template <Tensor (*compute)(const Tensor&, const Tensor&)>
Tensors choose_in_result_dtype(Arguments arguments) {
  if (arguments.size() != 3) return {};
  const Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor(),
               &out = arguments[2].toTensor();
  if (out.is_meta() || !is_integer(self) || !is_integer(other) || !is_integer(out)) return {};
  if (at::native::result_type({self, other}) == out.scalar_type()) return {};
  return {compute(self.to(out.scalar_type()), other.to(out.scalar_type()))};
}

// linspace(start, end, steps, out): the step is a float32, and the upper half is counted down from the end.
Tensors linspace_of_integers(Arguments arguments) {
  if (arguments.size() != 4 || !arguments[0].isScalar() || !arguments[1].isScalar() ||
      !arguments[3].isTensor())
    return {};
  const Tensor& out = arguments[3].toTensor();
  const int64_t steps = arguments[2].toInt();
  if (out.is_meta() || !is_integer(out) || steps < 2) return {};
  Tensor result = at::empty({steps}, out.options());
  AT_DISPATCH_INTEGRAL_TYPES(out.scalar_type(), "linspace_cuda", [&] {
    const auto start = arguments[0].toScalar().to<scalar_t>(), end = arguments[1].toScalar().to<scalar_t>();
    const float first = static_cast<float>(start), last = static_cast<float>(end);
    const float step = (last - first) / static_cast<float>(steps - 1);
    auto* const values = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < steps; ++i) {
      values[i] =
          static_cast<scalar_t>(i < steps / 2 ? std::fma(step, static_cast<float>(i), first)
                                              : std::fma(-step, static_cast<float>(steps - i - 1), last));
    }
  });
  return {result};
}

// All bits of a remainder by zero are set.
Tensors remainder_by_zero(Arguments arguments) {
  const auto tensor_of = [&](const c10::IValue& value, const Tensor& like) {
    return value.isTensor() ? value.toTensor() : at::scalar_tensor(value.toScalar(), like.options());
  };
  if (!arguments[0].isTensor() && !arguments[1].isTensor()) return {};
  const Tensor& any = arguments[arguments[0].isTensor() ? 0 : 1].toTensor();
  if (any.is_meta() || any.layout() != c10::kStrided) return {};
  for (const c10::IValue& value : arguments.slice(0, 2)) {
    if (value.isTensor() ? !is_integer(value.toTensor()) : !value.isInt()) return {};
  }
  Tensor self = tensor_of(arguments[0], any), other = tensor_of(arguments[1], any);
  const c10::ScalarType dtype = at::native::result_type({self, other});
  self = self.to(dtype);
  other = other.to(dtype);
  const Tensor is_zero = other.eq(0);
  // The least number has no remainder by -1 on the CPU: it is 0, as by 1.
  const Tensor safe = at::where(is_zero.logical_or(other.eq(-1)), 1, other);
  Tensor result = at::remainder(self, safe);
  return {at::where(is_zero, -1, result).to(dtype)};
}

// As CUDA's conversions: numbers beyond the range become its ends; NaN becomes 0, and the sign bit alone
// where the source is float64 or the result int64.
template <typename To, typename From>
To converted(From from) {
  constexpr bool kIsWide = std::is_same_v<From, double> || sizeof(To) == 8;
  constexpr To kLeast = std::numeric_limits<To>::min(), kMost = std::numeric_limits<To>::max();
  constexpr From kBeyond = sizeof(To) == 8 ? From(0x1p63) : From(0x1p31);
  if (from != from) return kIsWide ? kLeast : To(0);
  if (from >= kBeyond) return kMost;
  return from < -kBeyond ? kLeast : static_cast<To>(from);
}

template <typename To>
void convert(const Tensor& from, const Tensor& to) {
  const int64_t count = from.numel();
  auto* const out = to.mutable_data_ptr<To>();
  const auto run = [&](const auto* in) {
    at::parallel_for(0, count, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = converted<To>(in[i]);
    });
  };
  if (from.scalar_type() == at::kDouble) return run(from.const_data_ptr<double>());
  run(from.const_data_ptr<float>());
}

Tensors copy_converting(Arguments arguments) {
  const Tensor &self = arguments[0].toTensor(), &source = arguments[1].toTensor();
  if (self.is_meta() || !converts_as_cuda(self, source)) return {};
  const c10::ScalarType wide = source.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor from = source.to(wide).expand(self.sizes()).contiguous();
  const Tensor to = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  self.scalar_type() == at::kInt ? convert<int32_t>(from, to) : convert<int64_t>(from, to);
  if (!to.is_same(self)) self.copy_(to);
  return {self};
}

// A slice of up to 32 keys, sorted by Batcher's network for 32, which is not stable: what is equal may change
// places. A swap is made where "goes before" is not what the direction says.
template <typename T, typename Before>
void sort_by_network(T* keys, int64_t* places, int64_t count, const Before& goes_before) {
  constexpr size_t kSize = 32;
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

constexpr int64_t kNetworkSize = 32;

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

// The dimension is moved to the end; the results are laid out as the operand without it.
struct Slices {
  Slices(const Tensor& self, int64_t dim, int64_t kept)
      : dim(c10::maybe_wrap_dim(dim, self.dim())), rows(self.movedim(this->dim, -1).contiguous()) {
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes.back() = kept;
    values = at::empty(sizes, self.options());
    places = at::empty(sizes, self.options().dtype(at::kLong));
  }
  Tensors results() const { return {values.movedim(-1, dim), places.movedim(-1, dim)}; }
  int64_t size() const { return rows.size(-1); }
  int64_t count() const { return size() == 0 ? 0 : rows.numel() / size(); }

  const int64_t dim;
  const Tensor rows;
  Tensor values, places;
};

// sort.stable(self, stable, dim, descending)
Tensors sort_slices(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (arguments.size() != 4 && arguments.size() != 6) return {};
  const bool is_stable = arguments[1].isBool() && arguments[1].toBool();
  if (self.is_meta() || is_stable || self.dim() == 0 || self.is_complex()) return {};
  const int64_t size = self.size(arguments[2].toInt());
  if (size < 2 || size > kNetworkSize) return {};
  Slices slices(self, arguments[2].toInt(), size);
  const bool descending = arguments[3].toBool();
  slices.values.copy_(slices.rows);
  slices.places.copy_(at::arange(size, slices.places.options()).expand(slices.places.sizes()));
  AT_DISPATCH_V2(self.scalar_type(), "sort_cuda", AT_WRAP([&] {
                   auto* const keys = slices.values.mutable_data_ptr<scalar_t>();
                   auto* const places = slices.places.mutable_data_ptr<int64_t>();
                   for (int64_t row = 0; row < slices.count(); ++row)
                     sort_small(keys + row * size, places + row * size, size, descending);
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16,
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return slices.results();
}

// topk(self, k, dim, largest, sorted): what lies beyond the k-th value comes first, in the order of indices,
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

struct Row {
  std::string_view name;
  OwnKernel kernel;
};
constexpr Row kRows[] = {
    {"aten::copy_", copy_converting},
    {"aten::div", divide_by_number},
    {"aten::div_", divide_by_number},
    {"aten::fmax", choose_in_result_dtype<at::fmax>},
    {"aten::fmin", choose_in_result_dtype<at::fmin>},
    {"aten::linspace", linspace_of_integers},
    {"aten::maximum", choose_in_result_dtype<at::maximum>},
    {"aten::minimum", choose_in_result_dtype<at::minimum>},
    {"aten::remainder", remainder_by_zero},
    {"aten::remainder_", remainder_by_zero},
    {"aten::sort", sort_slices},
    {"aten::topk", top_of_slices},
};

}  // namespace

OwnKernel cuda_kernel_of(std::string_view name) {
  if (device_type() != c10::DeviceType::CUDA) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
  return found == std::end(kRows) ? nullptr : found->kernel;
}

bool converts_as_cuda(const Tensor& destination, const Tensor& source) {
  return (destination.scalar_type() == at::kInt || destination.scalar_type() == at::kLong) &&
         source.is_floating_point() && c10::elementSize(source.scalar_type()) > 1 &&
         destination.layout() == c10::kStrided && source.layout() == c10::kStrided;
}

}  // namespace loom::glue
