#include "torch/memory/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Event.h>

#include "runtime/capture.h"
#include "runtime/worlds.h"
#include "torch/core/device.h"
#include "torch/memory/register.h"

namespace loom::glue {

namespace {

using Event = std::unique_ptr<c10::Event>;

// Pinned memory is the host's, whichever devices the program sees: a dry run's may use what was pinned
// before.
driver::Driver& host_driver() {
  devices();
  return runtime::worlds::program()->device(0).driver();
}

struct Impl final : at::CachingHostAllocatorImpl<c10::Stream, Event> {
  void allocate_host_memory(size_t bytes, void** address) override {
    translated([&] { *address = host_driver().allocate_host(bytes); });
  }
  void free_block(at::HostBlock<c10::Stream>* block) override {
    translated([&] { host_driver().deallocate(block->ptr_); });
  }
  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    auto event = std::make_unique<c10::Event>(device_type());
    event->record(stream);
    events->push_back(std::move(event));
  }
  bool query_event(Event& event) override {
    if (!runtime::capture::is_underway()) return event->query();
    // Housekeeping: no capture's mode forbids it, and an event of a capture is not over before the capture
    // is.
    const runtime::capture::Relaxed relaxed;
    return !runtime::capture::is_marked(static_cast<driver::Event>(event->eventId())) && event->query();
  }
  c10::Stream get_current_stream() const override {
    return c10::impl::VirtualGuardImpl(device_type())
        .getStream(c10::Device(device_type(), static_cast<c10::DeviceIndex>(runtime::current_device())));
  }
  bool stream_is_capturing(c10::Stream stream) const override {
    return runtime::is_captured({stream.device_index(), stream.id()});
  }
};

void free_pinned(void* context);

struct HostAllocator final : at::CachingHostAllocatorInterface<Impl, &free_pinned> {
  // Work that used the block before has finished; readers of the tape learn that from the allocation.
  at::DataPtr allocate(size_t bytes) override {
    at::DataPtr memory = CachingHostAllocatorInterface::allocate(bytes);
    if (memory.get() != nullptr && runtime::tape::is_told(runtime::CommandKind::kAllocate)) [[unlikely]] {
      runtime::Command command = runtime::describe(runtime::CommandKind::kAllocate, /*device=*/-1, 0);
      command.name = "allocate pinned";
      command.address = memory.get();
      command.bytes = bytes;
      runtime::tape::note(command);
    }
    return memory;
  }
};

HostAllocator& instance() {
  static auto* allocator = new HostAllocator;  // leaked: pinned tensors may outlive every other static object
  return *allocator;
}

void free_pinned(void* context) {
  if (!runtime::in_bad_fork()) instance().free(context);
}

}  // namespace

void register_host_allocator() { at::setHostAllocator(device_type(), &instance()); }

c10::Allocator* pinned_allocator() {
  devices();
  return &instance();
}

bool is_pinned(const void* address) {
  return runtime::is_initialized() && !runtime::in_bad_fork() &&
         runtime::locate(address).kind == driver::AddressKind::kPinnedHost;
}

void keep_pinned(const c10::DataPtr& memory, runtime::StreamRef stream) {
  if (!is_pinned(memory.get())) return;
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(stream.device));
  instance().record_event(memory.get(), memory.get_context(),
                          c10::Stream(c10::Stream::UNSAFE, device, stream.id));
}

}  // namespace loom::glue
