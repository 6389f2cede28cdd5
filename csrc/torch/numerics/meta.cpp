// Shape functions of the products, symbolic sizes included.
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>

#include <array>

#include "numerics/tiles.h"
#include "torch/core/registration.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

at::Tensor result_like(const at::Tensor& shape, const at::Tensor& self) {
  return at::empty_symint(shape.sym_sizes(), shape.options().dtype(self.scalar_type()));
}

at::Tensor matmul_meta(const at::Tensor& self, const at::Tensor& other, int64_t, int64_t, int64_t, int64_t,
                       int64_t) {
  check_floating(self, "matmul");
  check_floating(other, "matmul");
  return result_like(at::matmul(self, other.to(self.scalar_type())), self);
}

void matmul_out_meta(const at::Tensor& self, const at::Tensor& other, int64_t, int64_t, int64_t, int64_t,
                     at::Tensor& out) {
  const at::Tensor shape = at::matmul(self, other.to(self.scalar_type()));
  if (out.sym_sizes() != shape.sym_sizes()) out.resize__symint(shape.sym_sizes());
}

std::optional<at::Tensor> as(const std::optional<at::Tensor>& tensor, at::ScalarType type) {
  return tensor.has_value() ? std::optional(tensor->to(type)) : std::nullopt;
}

at::Tensor linear_meta(const at::Tensor& self, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, int64_t, int64_t, int64_t, int64_t) {
  check_floating(self, "linear");
  check_floating(weight, "linear");
  const at::ScalarType type = self.scalar_type();
  return result_like(at::linear(self, weight.to(type), as(bias, type)), self);
}

at::Tensor convolution_meta(const at::Tensor& self, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                            c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                            c10::SymIntArrayRef output_padding, c10::SymInt groups, int64_t, int64_t, int64_t,
                            int64_t) {
  check_floating(self, "convolution");
  check_floating(weight, "convolution");
  const at::ScalarType type = self.scalar_type();
  return result_like(at::convolution_symint(self, weight.to(type), as(bias, type), stride, padding, dilation,
                                            transposed, output_padding, std::move(groups)),
                     self);
}

std::tuple<at::Tensor, at::Tensor> convolution_backward_meta(const at::Tensor&, const at::Tensor& self,
                                                             const at::Tensor& weight, c10::SymIntArrayRef,
                                                             c10::SymIntArrayRef, c10::SymIntArrayRef, bool,
                                                             c10::SymIntArrayRef, c10::SymInt, int64_t,
                                                             int64_t, std::array<bool, 2> output_mask) {
  const auto made = [](const at::Tensor& like, bool wanted) {
    return wanted ? result_like(like, like) : at::empty({0}, like.options());
  };
  return {made(self, output_mask[0]), made(weight, output_mask[1])};
}

at::Tensor operand_meta(const at::Tensor& self, int64_t, int64_t, bool) {
  check_floating(self, "operand");
  return at::empty_like(self);
}

c10::SymInt across(const c10::SymInt& elements) { return (elements + (kTile - 1)) / kTile; }

at::Tensor pack_meta(const at::Tensor& self, int64_t format) {
  const Format to = checked_format(format, "pack");
  c10::SymInt num_tiles = 1;
  const int64_t dim = self.dim();
  for (int64_t i = 0; i < dim; ++i) {
    num_tiles = num_tiles * (i < dim - 2 ? self.sym_size(i) : across(self.sym_size(i)));
  }
  return at::empty_symint({num_tiles, tile_bytes(to)}, self.options().dtype(at::kByte));
}

at::Tensor unpack_meta(const at::Tensor& tiles, int64_t format, c10::SymIntArrayRef shape) {
  checked_format(format, "unpack");
  return at::empty_symint(shape, tiles.options().dtype(at::kFloat));
}

}  // namespace

void register_product_shapes() {
  torch::Library& meta = loom::glue::library(c10::DispatchKey::Meta, kLibrary);
  meta.impl("matmul", &matmul_meta);
  meta.impl("matmul.out", &matmul_out_meta);
  meta.impl("linear", &linear_meta);
  meta.impl("convolution", &convolution_meta);
  meta.impl("convolution_backward", &convolution_backward_meta);
  meta.impl("operand", &operand_meta);
  meta.impl("pack", &pack_meta);
  meta.impl("unpack", &unpack_meta);
}

}  // namespace loom::numerics::glue
