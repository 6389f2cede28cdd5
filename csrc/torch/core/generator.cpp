#include "torch/core/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>
#include <deque>
#include <mutex>

#include "runtime/capture.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace {

constexpr size_t kStateBytes = 16;  // uint64 seed, uint64 offset
constexpr size_t kSeedBytes = 8;    // a state may be the seed alone, as on CUDA: the offset is then 0

}  // namespace

LoomGenerator::LoomGenerator(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(device_type(), device), own_keys()) {}

GraphRandom* LoomGenerator::captured() const {
  if (!runtime::capture::is_underway()) return nullptr;
  const runtime::StreamRef stream = runtime::current_stream_of(device().index());
  return runtime::is_captured(stream) ? static_cast<GraphRandom*>(runtime::capture::owner_of(stream))
                                      : nullptr;
}

void LoomGenerator::set_current_seed(uint64_t seed) {
  if (captured() != nullptr) {
    TORCH_CHECK(seed == state_->seed, device_name_upper(),
                "GeneratorImpl::set_current_seed can be called during stream capture only if new seed is the "
                "same as the original seed.");
    return;
  }
  state_->seed = seed;
  state_->offset = 0;
}

void LoomGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % kOffsetStep == 0, "offset must be a multiple of 4, got ", offset);
  GraphRandom* const graph = captured();
  if (graph == nullptr) {
    state_->offset = offset;
    return;
  }
  uint64_t* const moved = graph->offset_of(*state_);
  TORCH_CHECK(
      moved != nullptr,
      "the offset of a generator cannot be set during stream capture if it is not registered with the "
      "graph: call register_generator_state(generator) before the capture");
  *moved = offset;
}

uint64_t LoomGenerator::get_offset() const {
  GraphRandom* const graph = captured();
  const uint64_t* const moved = graph == nullptr ? nullptr : graph->offset_of(*state_);
  return moved == nullptr ? state_->offset : *moved;
}

CapturedRandom take(RandomState& state, uint64_t offset) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  const CapturedRandom before{state.seed, state.offset};
  state.offset += offset;
  return before;
}

uint64_t LoomGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void LoomGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.layout() == c10::kStrided && state.device_type() == c10::kCPU &&
                       state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "RNG state must be a torch.ByteTensor on the CPU");
  const auto bytes = static_cast<size_t>(state.numel());
  TORCH_CHECK((bytes == kStateBytes || bytes == kSeedBytes) && state.is_contiguous(),
              "RNG state is wrong size: it must be ", kStateBytes, " contiguous bytes (seed, offset) or ",
              kSeedBytes, " (seed), got ", bytes);
  uint64_t words[2] = {0, 0};
  std::memcpy(words, state.data(), bytes);
  TORCH_CHECK(words[1] % kOffsetStep == 0, "offset must be a multiple of 4, got ", words[1]);
  set_current_seed(words[0]);
  set_offset(words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> LoomGenerator::get_state() const {
  at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, c10::kByte);
  const uint64_t words[2] = {state_->seed, get_offset()};
  std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

void LoomGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const auto* other = dynamic_cast<const LoomGenerator*>(state.get());
  TORCH_CHECK(other != nullptr && other->device() == device(), "Expected the state of a generator of ",
              device());
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> LoomGenerator::graphsafe_get_state() const {
  auto other = c10::make_intrusive<LoomGenerator>(device().index());
  other->state_ = state_;
  return other;
}

LoomGenerator* LoomGenerator::clone_impl() const {
  auto* copy = new LoomGenerator(device().index());
  copy->state_->seed = state_->seed;
  copy->state_->offset = state_->offset;
  return copy;
}

const at::Generator& default_generator(int device) {
  // Of the program's devices, and of the last dry run's. Leaked: Python keeps references past exit.
  struct World {
    int64_t number = 0;
    std::deque<at::Generator> generators;
  };
  static std::mutex mutex;
  static auto* worlds = new std::array<World, 2>;
  check_device_index(device);
  std::lock_guard<std::mutex> lock(mutex);
  const int64_t number = runtime::detail::world.load(std::memory_order_relaxed);
  World& world = (*worlds)[number == 0 ? 0 : 1];
  if (world.number != number) world = {number, {}};
  std::deque<at::Generator>* const generators = &world.generators;
  while (generators->size() <= static_cast<size_t>(device)) {
    auto generator = at::make_generator<LoomGenerator>(static_cast<c10::DeviceIndex>(generators->size()));
    generator.seed();
    generators->push_back(std::move(generator));
  }
  return (*generators)[static_cast<size_t>(device)];
}

const at::Generator& generator_of(const std::optional<at::Generator>& generator, int device,
                                  const char* op_name) {
  const at::Generator& source =
      generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(source.device().type() == device_type(), "Expected a '", device_name(),
              "' device type for generator but found '", source.device().type(), "' (in ", op_name, ")");
  TORCH_CHECK(source.device().index() == device, "Expected a generator of device ",
              c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)), " but found one of ",
              source.device(), " (in ", op_name, ")");
  return source;
}

}  // namespace loom::glue
