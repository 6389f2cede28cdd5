// Kaiser windows. PyTorch's op fills them by a kernel for the device's own type, which only its builds have.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/kaiser_window.h>

#include "torch/core/registration.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Dtype = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;

constexpr double kDefaultBeta = 12;

Tensor& fill(Tensor& self, bool periodic, double beta) {
  return self.is_meta() ? self : self.copy_(at::kaiser_window(self.numel(), periodic, beta, self.options()));
}

Tensor of_beta(int64_t window_length, bool periodic, double beta, Dtype dtype, Layout layout, Device device,
               std::optional<bool> pin_memory) {
  const at::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided,
              "kaiser_window is not implemented for sparse types, got: ", *layout);
  TORCH_CHECK(at::isFloatingType(type), "kaiser_window expects floating point dtypes, got: ", type);
  TORCH_CHECK(window_length >= 0,
              "kaiser_window requires non-negative window_length, got window_length=", window_length);
  static const auto op = find_fused<decltype(fill)>("loom_fused::kaiser_window", "fill");
  Tensor window = at::empty({window_length}, type, layout, device, pin_memory, std::nullopt);
  return window_length == 0 ? window : op.call(window, periodic, beta);
}

Tensor of_period(int64_t window_length, bool periodic, Dtype dtype, Layout layout, Device device,
                 std::optional<bool> pin_memory) {
  return of_beta(window_length, periodic, kDefaultBeta, dtype, layout, device, pin_memory);
}

Tensor of_length(int64_t window_length, Dtype dtype, Layout layout, Device device,
                 std::optional<bool> pin_memory) {
  return of_period(window_length, /*periodic=*/true, dtype, layout, device, pin_memory);
}

}  // namespace

void register_windows() {
  define_fused("kaiser_window.fill(Tensor(a!) self, bool periodic, float beta) -> Tensor(a!)", fill);
  torch::Library& m = library(own_key());
  m.impl("kaiser_window", of_length);
  m.impl("kaiser_window.periodic", of_period);
  m.impl("kaiser_window.beta", of_beta);
}

}  // namespace loom::glue
