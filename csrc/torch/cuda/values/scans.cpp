#include "torch/cuda/values/scans.h"

#include <ATen/WrapDimUtils.h>

#include <functional>

#include "torch/cuda/values/reductions.h"
#include "torch/random/scan.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

// (self, dim, dtype), and an out.
template <typename Combine>
Tensors scanned_in_order(Arguments arguments, double identity, const Combine& combine) {
  const Tensor& self = arguments[0].toTensor();
  const c10::ScalarType dtype = dtype_of_sum(arguments, 2);
  if (self.is_meta() || self.layout() != c10::kStrided || !is_summed(dtype) || self.numel() == 0) return {};
  if (adding_grid() == nullptr || self.is_complex() || self.dim() == 0) return {};
  const int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  if (self.numel() == self.size(dim)) return {};
  return {scanned_rows(self.to(dtype).contiguous(), dim, identity, combine)};
}

}  // namespace

Tensors running_sum_in_order(Arguments arguments) { return scanned_in_order(arguments, 0.0, std::plus<>()); }
Tensors running_product_in_order(Arguments arguments) {
  return scanned_in_order(arguments, 1.0, std::multiplies<>());
}

}  // namespace loom::glue
