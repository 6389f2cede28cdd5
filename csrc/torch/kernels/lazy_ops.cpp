// Ops of unmaterialised tensors that have kernels of their own.
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include "torch/core/registration.h"
#include "torch/dispatch/unboxed.h"
#include "torch/kernels/register.h"
#include "torch/memory/lazy.h"

namespace loom::glue {

namespace {

at::Tensor& zero_(at::Tensor& self) {
  const auto fill = [&](at::Tensor& host) {
    const EngineScope scope;
    at::_ops::zero_::redispatch(engine_keys(glue::device_of(self)), host);
  };
  if (is_unmaterialised(self) && on_host(self, fill)) [[unlikely]]
    return self;
  return Borrowed<at::_ops::zero_>::call(self);
}

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  const auto fill = [&](at::Tensor& host) {
    const EngineScope scope;
    at::_ops::fill__Scalar::redispatch(engine_keys(glue::device_of(self)), host, value);
  };
  if (is_unmaterialised(self) && on_host(self, fill)) [[unlikely]]
    return self;
  return Borrowed<at::_ops::fill__Scalar>::call(self, value);
}

// Copy-on-write takes the place of the materializer, and shares device memory.
at::Tensor lazy_clone(const at::Tensor& self) {
  take_device_memory(self);
  return at::native::_lazy_clone(self);
}

}  // namespace

void register_lazy_ops() {
  torch::Library& m = library(own_key());
  m.impl("zero_", zero_);
  m.impl("fill_.Scalar", fill_);
  m.impl("_lazy_clone", lazy_clone);
}

}  // namespace loom::glue
