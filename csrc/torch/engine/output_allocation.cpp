#include "torch/engine/output_allocation.h"

#include <utility>

#include "torch/core/device.h"
#include "torch/core/device_memory.h"
#include "torch/core/host_room.h"

namespace loom::glue {

LOOM_FAST_ACCESS constinit thread_local OutputAllocations* output_allocations = nullptr;

OutputAllocations::Suspended::Suspended() : previous_(std::exchange(output_allocations, nullptr)) {}
OutputAllocations::Suspended::~Suspended() { output_allocations = previous_; }

int OutputAllocations::index_of(const void* address) const {
  // The last one: what an earlier allocation gave back may have been given out again.
  for (size_t i = seen_.size(); i-- > 0;) {
    if (seen_[i].address == address) return static_cast<int>(i);
  }
  return -1;
}

bool OutputAllocations::is_place(const void* address) const {
  for (size_t i = 0; i < num_places_; ++i) {
    if (places_[i].address == address) return true;
  }
  return false;
}

namespace {

// What the engine's kernel takes of the host, to be written at once.
c10::DataPtr host_memory_of(c10::Allocator& host, size_t bytes) {
  if (bytes < host_memory::kLargeBytes) [[likely]]
    return host.allocate(bytes);
  c10::DataPtr memory;
  try {
    memory = host.allocate(bytes);
  } catch (const c10::Error&) {
    throw_short_of_host(bytes);
  }
  check_host_room(memory.get(), bytes);
  return memory;
}

}  // namespace

// A wrong guess must not have the device run out of memory; copying so little is cheap beside what larger
// ones take.
constexpr size_t kMostGuessed = size_t{1} << 16;

void OutputAllocations::check_bound(size_t bytes) {
  if (device_ == nullptr || bytes < host_memory::kLargeBytes) [[likely]]
    return;
  if (static_cast<int64_t>(bytes) <= device_->allocator->memory_info().total_bytes) return;
  refused_bytes_ = bytes;
  C10_THROW_ERROR(OutOfMemoryError,
                  "the kernel needs " + std::to_string(bytes) + " bytes at once, more than the device has");
}

c10::DataPtr OutputAllocations::take_output(const runtime::Device& device, size_t bytes) {
  void* memory = device.runtime().engine_address(take_device_memory(device, bytes));
  c10::DataPtr output{memory, memory, &free_device_memory, c10::Device(c10::kCPU)};
  latest_output_ = memory;
  if (bytes >= host_memory::kLargeBytes) [[unlikely]] {
    check_host_room(memory, bytes);
    host_memory::touch(memory, bytes);
  }
  return output;
}

c10::DataPtr OutputAllocations::allocate(size_t bytes, c10::Allocator& host) {
  const size_t index = count_++;
  switch (mode_) {
    case Mode::kKnown:
      if (index < 64 && ((mask_ >> index) & 1) != 0) return take_output(*device_, bytes);
      return host_memory_of(host, bytes);
    case Mode::kLearning: {
      check_bound(bytes);
      const bool is_output = guessed_ != nullptr && bytes <= kMostGuessed;
      c10::DataPtr memory = is_output ? take_output(*guessed_, bytes) : host_memory_of(host, bytes);
      seen_.push_back({memory.get(), bytes});
      return memory;
    }
    case Mode::kPlaced:
      if (index < num_places_ && places_[index].address != nullptr && places_[index].bytes == bytes) {
        void* const address = places_[index].address;
        return {address, address, [](void*) {}, c10::Device(c10::kCPU)};
      }
      return host_memory_of(host, bytes);
  }
  return {};
}

}  // namespace loom::glue
