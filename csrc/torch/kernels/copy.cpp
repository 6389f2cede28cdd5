// Copies between any two devices and dtypes, and reading one element.
#include "torch/kernels/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_ops.h>
#include <torch/library.h>

#include <cstring>

#include "torch/core/registration.h"
#include "torch/cuda/values/values.h"
#include "torch/dispatch/implicit_sync.h"
#include "torch/dispatch/unboxed.h"
#include "torch/inference/no_values.h"
#include "torch/kernels/register.h"
#include "torch/memory/host_allocator.h"
#include "torch/memory/lazy.h"
#include "torch/memory/lazy_fill.h"
#include "torch/memory/worlds.h"

namespace loom::glue {

namespace {

// The same bytes in the same order: no arithmetic, the driver copies.
bool is_plain(const at::Tensor& destination, const at::Tensor& source) {
  return destination.scalar_type() == source.scalar_type() && destination.sizes() == source.sizes() &&
         destination.strides() == source.strides() && destination.is_non_overlapping_and_dense() &&
         !destination.is_alias_of(source) && destination.is_conj() == source.is_conj() &&
         destination.is_neg() == source.is_neg() && !source._is_zerotensor() &&
         destination.layout() == c10::kStrided && source.layout() == c10::kStrided;
}

at::Tensor lend_side(Lending& lending, const at::Tensor& tensor, bool is_written) {
  return is_loom(tensor) ? lending.lend(tensor, is_written) : tensor;
}

// What is submitted to `later` runs after what was submitted to `earlier`.
void put_in_order(runtime::StreamRef earlier, runtime::StreamRef later) {
  if (earlier == later) return;
  const driver::Event event = runtime::create_event(earlier.device, {/*timing=*/false});
  try {
    runtime::record_event(event, earlier);
    runtime::wait_event(later, event);
  } catch (...) {
    runtime::destroy_event(event);
    throw;
  }
  runtime::destroy_event(event);
}

// `own`: the stream of a copy, that of the source, as on CUDA. `other`: the destination's, whose order it
// must keep, too.
struct CopyStreams {
  runtime::StreamRef own, other;
};

CopyStreams streams_of(const at::Tensor& destination, const at::Tensor& source) {
  const int from = is_loom(source) ? source.device().index() : destination.device().index();
  const int to = is_loom(destination) ? destination.device().index() : from;
  return {runtime::current_stream_of(from), runtime::current_stream_of(to)};
}

void copy_bytes(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  check_has_memory(destination, "aten::copy_");
  check_has_memory(source, "aten::copy_");
  take_device_memory(destination);
  take_device_memory(source);
  const CopyStreams streams = streams_of(destination, source);
  void* to = destination.mutable_data_ptr();
  const void* from = source.const_data_ptr();
  const bool has_host = !is_loom(destination) || !is_loom(source);
  translated([&] {
    put_in_order(streams.other, streams.own);
    runtime::copy(streams.own, to, from, destination.nbytes());
    put_in_order(streams.own, streams.other);
    if (non_blocking && has_host) {
      keep_pinned((is_loom(destination) ? source : destination).storage().data_ptr(), streams.own);
    }
    // Within the device the stream orders what follows; the host waits.
    if (has_host && !non_blocking) runtime::synchronize_stream(streams.own);
  });
  if (!is_loom(destination) && !glue::device_of(source).runs_kernels()) {
    warn_of_constant();
    std::memset(to, 0, destination.nbytes());
  }
}

}  // namespace

at::Tensor& copy_(at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  if (destination.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return destination;
  TORCH_CHECK(destination.defined() && source.defined(), "copy_: both tensors must be defined");
  TORCH_CHECK(!destination.is_meta() && !source.is_meta(),
              "Cannot copy out of meta tensor; no data! (copy_ between ", source.device(), " and ",
              destination.device(), ")");
  check_world(destination, "aten::copy_");
  check_world(source, "aten::copy_");
  if ((is_unmaterialised(destination) || is_unmaterialised(source)) && copy_on_host(destination, source)) {
    return destination;
  }
  const bool runs_kernels = (!is_loom(destination) || glue::device_of(destination).runs_kernels()) &&
                            (!is_loom(source) || glue::device_of(source).runs_kernels());
  // As on CUDA: both ways, whether or not the host's memory is pinned.
  if (!non_blocking && is_loom(destination) != is_loom(source)) note_implicit_sync("aten::copy_", kOnTape);
  // Large copies within a device are a kernel: the engine spreads them over its threads.
  constexpr size_t kKernelBytes = size_t{128} << 10;
  const bool is_within = destination.device() == source.device();
  const bool is_kernel = is_within && destination.nbytes() >= kKernelBytes;
  if (is_plain(destination, source) && !is_kernel) {
    copy_bytes(destination, source, non_blocking);
    return destination;
  }
  if (is_within && device_type() == c10::DeviceType::CUDA && converts_as_cuda(destination, source)) {
    static const Op& converting = Op::named("aten::copy_", "");
    torch::jit::Stack stack{destination, source, non_blocking};
    run_boxed(converting.handle, &stack);
    return destination;
  }
  if (is_within) return Borrowed<at::_ops::copy_>::call(destination, source, non_blocking);
  // Each side is lent on its own, and the host waits: the two are on different devices.
  static Op& op = Op::named("aten::copy_", "");
  constexpr OperandPolicy kAnyHost{true, true, false};
  Lending lend_destination(op, kAnyHost), lend_source(op, kAnyHost);
  const at::Tensor from = lend_side(lend_source, source, false);
  at::Tensor to = lend_side(lend_destination, destination, true);
  const CopyStreams streams = streams_of(destination, source);
  translated([&] { put_in_order(streams.own, streams.other); });
  Lending& lending = is_loom(destination) ? lend_destination : lend_source;
  if (lending.must_describe(/*costs_anew=*/true)) [[unlikely]] {
    if (is_loom(destination) && is_loom(source)) {
      lending.description().add_input(source.unsafeGetTensorImpl(), /*is_written=*/false);
    }
    lending.description().add_attribute("non_blocking", non_blocking);
  }
  lending.find_plan();
  lending.expect_outputs();
  lending.run([&] {
    if (runs_kernels) {
      at::_ops::copy_::redispatch(lending.engine_keys(), to, from, non_blocking);
    } else {
      TORCH_CHECK(at::is_expandable_to(from.sizes(), to.sizes()), "copy_: a tensor of shape ", from.sizes(),
                  " does not broadcast to ", to.sizes());
      if (!is_loom(destination)) {
        warn_of_constant();
        to.zero_();
      }
    }
  });
  lending.finish(destination);
  // It has run already: this reports the wait to the tape's readers, which know the order that it makes on a
  // chip.
  const bool has_host = !is_loom(destination) || !is_loom(source);
  if (has_host && !non_blocking) translated([&] { runtime::synchronize_stream(streams.own); });
  return destination;
}

namespace {

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  copy_(const_cast<at::Tensor&>(destination), source, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  if (destination.sizes() != source.sizes()) destination.resize_(source.sizes());
  return copy_from(source, destination, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  check_world(self, "aten::_local_scalar_dense");
  const runtime::Device& own = glue::device_of(self);
  if (is_unmaterialised(self)) {
    at::Scalar value;
    const auto read = [&](at::Tensor& host) {
      value = at::_ops::_local_scalar_dense::redispatch(engine_keys(own), host);
    };
    if (on_host(self, read)) return value;
  }
  note_implicit_sync("aten::_local_scalar_dense", self.device().index());
  alignas(16) unsigned char bytes[16];
  TORCH_INTERNAL_ASSERT(self.itemsize() <= sizeof bytes);
  const int device = self.device().index();
  translated([&] {
    runtime::copy(runtime::current_stream_of(device), bytes, self.const_data_ptr(), self.itemsize());
  });
  if (!own.runs_kernels()) {
    const bool passes = holds_true(self);
    if (!passes) warn_of_constant();
    std::memset(bytes, 0, sizeof bytes);
    bytes[0] = passes ? 1 : 0;
  }
  switch (self.scalar_type()) {
#define LOOM_READ(type, name) \
  case c10::ScalarType::name: \
    return at::Scalar(*reinterpret_cast<const type*>(bytes));
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(LOOM_READ)
#undef LOOM_READ
    default: {
      Lending lending(Op::named("aten::_local_scalar_dense", ""));
      return at::_ops::_local_scalar_dense::redispatch(engine_keys(own), lending.lend(self));
    }
  }
}

}  // namespace

void register_copies() {
  torch::Library& m = library(own_key());
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
}

}  // namespace loom::glue
