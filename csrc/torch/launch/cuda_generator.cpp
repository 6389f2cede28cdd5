// What libtorch_cuda would export of CUDA's generator: extensions draw from it in kernels of their own. The
// pointer is really to a LoomGenerator: no field of CUDAGeneratorImpl is there.
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/capture.h"
#include "torch/core/device.h"
#include "torch/core/generator.h"
#include "torch/dispatch/graph.h"
#include "torch/launch/launch.h"

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

// Where graphs keep what their kernels read the generator's state from.
struct CapturedStarts {
  std::mutex mutex;
  std::vector<std::weak_ptr<const CapturedRandom>> all;
};
CapturedStarts& captured_starts() {
  static auto* starts = new CapturedStarts;
  return *starts;
}

void remember(const std::shared_ptr<const CapturedRandom>& start) {
  CapturedStarts& starts = captured_starts();
  const std::lock_guard<std::mutex> lock(starts.mutex);
  std::erase_if(starts.all, [&](const auto& each) { return each.expired() || each.lock() == start; });
  starts.all.push_back(start);
}

}  // namespace

bool is_captured_random(uintptr_t address, size_t bytes) {
  CapturedStarts& starts = captured_starts();
  const std::lock_guard<std::mutex> lock(starts.mutex);
  return std::any_of(starts.all.begin(), starts.all.end(), [&](const auto& each) {
    const auto start = each.lock();
    const auto first = reinterpret_cast<uintptr_t>(start.get());
    return start != nullptr && address >= first && address + bytes <= first + sizeof(CapturedRandom);
  });
}

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
  remember(draw.random);
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
