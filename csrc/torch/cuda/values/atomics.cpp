#include "torch/cuda/values/atomics.h"

#include <ATen/Context.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/put.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>

#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

// Places 0 … size − 1 in the order of this call; not defined where the engine's order holds.
Tensor order_of(const Tensor& summed, int64_t size) {
  if (size < 2 || summed.is_meta() || !(summed.is_floating_point() || summed.is_complex())) return {};
  if (at::globalContext().deterministicAlgorithms()) return {};
  const std::optional<uint64_t> seed = devices().draw();
  if (!seed.has_value()) return {};
  const Tensor order = at::empty({size}, at::kLong);
  int64_t* const places = order.mutable_data_ptr<int64_t>();
  std::iota(places, places + size, 0);
  // Not std::shuffle, whose order differs between libraries.
  std::mt19937_64 random(*seed);
  for (int64_t i = size - 1; i > 0; --i) {
    std::swap(places[i], places[random() % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

// An index and what is added by it, in the order of this call along a dimension of both; nothing where they
// do not fit together, which the engine says in the op's words.
struct Reordered {
  Tensor index, source;
};
std::optional<Reordered> reordered(const Tensor& self, const Tensor& index, int64_t index_dim,
                                   const Tensor& source, int64_t source_dim, bool may_be_longer = false) {
  if (self.defined() && (self.is_alias_of(source) || self.is_alias_of(index))) return std::nullopt;
  const auto is_there = [](const Tensor& tensor, int64_t dim) {
    return dim >= -tensor.dim() && dim < tensor.dim();
  };
  if (!is_there(index, index_dim) || !is_there(source, source_dim)) return std::nullopt;
  const int64_t size = index.size(index_dim), num_added = source.size(source_dim);
  if (may_be_longer ? num_added < size || source.dim() != index.dim() : num_added != size)
    return std::nullopt;
  const Tensor order = order_of(source, size);
  if (!order.defined()) return std::nullopt;
  return Reordered{index.index_select(index_dim, order), source.index_select(source_dim, order)};
}

}  // namespace

// (self, dim, index, source, alpha).
Tensors add_rows_in_some_order(Arguments arguments) {
  const int64_t dim = arguments[1].toInt();
  const Tensor &self = arguments[0].toTensor(), &source = arguments[3].toTensor();
  const Tensor& index = arguments[2].toTensor();
  if (index.dim() != 1) return {};
  const auto changed = reordered(self, index, 0, source, dim);
  if (!changed.has_value()) return {};
  return {at::index_add(self, dim, changed->index, changed->source, arguments[4].toScalar())};
}

// (self, dim, index, source).
Tensors scatter_sums_in_some_order(Arguments arguments) {
  const int64_t dim = arguments[1].toInt();
  const auto changed =
      reordered(arguments[0].toTensor(), arguments[2].toTensor(), dim, arguments[3].toTensor(), dim, true);
  if (!changed.has_value()) return {};
  return {at::scatter_add(arguments[0].toTensor(), dim, changed->index, changed->source)};
}

// (self, dim, index, source, reduce, include_self).
Tensors scatter_reduced_in_some_order(Arguments arguments) {
  const c10::string_view reduce = arguments[4].toStringView();
  if (reduce != "sum" && reduce != "mean" && reduce != "prod") return {};
  const int64_t dim = arguments[1].toInt();
  const auto changed =
      reordered(arguments[0].toTensor(), arguments[2].toTensor(), dim, arguments[3].toTensor(), dim, true);
  if (!changed.has_value()) return {};
  return {at::scatter_reduce(arguments[0].toTensor(), dim, changed->index, changed->source, reduce,
                             arguments[5].toBool())};
}

// (self, index, source, accumulate).
Tensors put_sums_in_some_order(Arguments arguments) {
  const Tensor &index = arguments[1].toTensor(), &source = arguments[2].toTensor();
  if (!arguments[3].toBool() || index.numel() == 0) return {};
  const auto changed = reordered(arguments[0].toTensor(), index.reshape({-1}), 0, source.reshape({-1}), 0);
  if (!changed.has_value()) return {};
  return {at::put(arguments[0].toTensor(), changed->index, changed->source, /*accumulate=*/true)};
}

// (self, weights, minlength).
Tensors count_weights_in_some_order(Arguments arguments) {
  if (!arguments[1].isTensor() || !arguments[1].toTensor().defined()) return {};
  if (arguments[0].toTensor().dim() != 1 || arguments[1].toTensor().dim() != 1) return {};
  const auto changed = reordered({}, arguments[0].toTensor(), 0, arguments[1].toTensor(), 0);
  if (!changed.has_value()) return {};
  return {at::bincount(changed->index, changed->source, arguments[2].toInt())};
}

}  // namespace loom::glue
