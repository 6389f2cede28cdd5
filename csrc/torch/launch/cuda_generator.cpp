// What libtorch_cuda would export of CUDA's generator: extensions draw from it in kernels of their own. The
// generator behind the pointer is the device's own; its class is PyTorch's by name alone, so no member of
// that class may be looked at here.
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include "runtime/capture.h"
#include "torch/core/device.h"
#include "torch/core/generator.h"
#include "torch/dispatch/graph.h"

namespace loom::glue {

namespace {

LoomGenerator& own(at::CUDAGeneratorImpl* generator) {
  return static_cast<LoomGenerator&>(static_cast<c10::GeneratorImpl&>(*generator));
}

// CUDA's generators move on by whole calls of Philox.
uint64_t rounded(uint64_t numbers) { return (numbers + kOffsetStep - 1) / kOffsetStep * kOffsetStep; }

bool is_captured(int device) {
  return runtime::capture::is_underway() && runtime::is_captured(runtime::current_stream_of(device));
}

}  // namespace

}  // namespace loom::glue

using namespace loom::glue;

namespace at {

c10::DeviceType CUDAGeneratorImpl::device_type() { return c10::DeviceType::CUDA; }

PhiloxCudaState CUDAGeneratorImpl::philox_cuda_state(uint64_t increment) {
  LoomGenerator& generator = own(this);
  const int device = generator.device().index();
  if (!is_captured(device)) {
    const CapturedRandom start = take(*generator.state(), rounded(increment));
    return {start.seed, start.offset};
  }
  // Where a replay writes its start; the graph keeps it.
  const at::Generator source(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(&generator));
  const CapturedDraw draw = captured_draw(source, device, "philox_cuda_state", rounded(increment));
  auto* const start = const_cast<CapturedRandom*>(draw.random.get());
  return {reinterpret_cast<int64_t*>(&start->seed), reinterpret_cast<int64_t*>(&start->offset), draw.offset};
}

std::pair<uint64_t, uint64_t> CUDAGeneratorImpl::philox_engine_inputs(uint64_t increment) {
  LoomGenerator& generator = own(this);
  TORCH_CHECK(!is_captured(generator.device().index()),
              "philox_engine_inputs: its numbers would be the same in each replay of the graph that is being "
              "captured. Call philox_cuda_state instead");
  const CapturedRandom start = take(*generator.state(), rounded(increment));
  return {start.seed, start.offset};
}

void CUDAGeneratorImpl::set_philox_offset_per_thread(uint64_t offset) { own(this).set_offset(offset); }
uint64_t CUDAGeneratorImpl::philox_offset_per_thread() const {
  return own(const_cast<CUDAGeneratorImpl*>(this)).get_offset();
}

namespace cuda::detail {

const Generator& getDefaultCUDAGenerator(DeviceIndex device) {
  devices();
  return default_generator(device == -1 ? loom::runtime::current_device() : device);
}
Generator createCUDAGenerator(DeviceIndex device) {
  devices();
  const int index = device == -1 ? loom::runtime::current_device() : device;
  check_device_index(index);
  return at::make_generator<LoomGenerator>(static_cast<DeviceIndex>(index));
}

}  // namespace cuda::detail

}  // namespace at
