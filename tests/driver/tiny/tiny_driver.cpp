// About the least that a driver can be: memory of the host, and streams that run everything in the caller's
// thread, so that nothing is ever pending. It is compiled against the installed headers alone.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "driver/driver.h"

namespace {

using namespace loom;
using namespace loom::driver;

constexpr size_t kGranule = 2 << 20;

struct TinyStream {
  std::recursive_mutex mutex;  // one kernel at a time; a kernel may submit to its own stream
};

struct TinyEvent {
  const bool is_timed;
  std::mutex mutex{};
  bool is_recorded = false;
  int64_t time_ns = 0;
};

template <typename T>
T& of(void* handle, const char* what) {
  if (handle == nullptr) throw InvalidArgument(std::string(what) + " must not be null");
  return *static_cast<T*>(handle);
}

class TinyDriver final : public Driver {
 public:
  explicit TinyDriver(const DriverConfig& config)
      : config_(config),
        program_(*config.program),
        info_{.name = "tiny",
              .engine = "cpu",
              .device_count = config.device_count,
              .executes_kernels = true,
              .queues_kernels = false,
              .sticky_failures = false,
              .host_addressable = true,
              .unified_addresses = true,
              .peer_access = true,
              .shared_memory = false,
              .memory_rooms = false,
              .stream_priorities = false,
              .stream_activity = false} {}

  const Info& info() const noexcept override { return info_; }

  void* allocate(int device, size_t bytes, Place place) override {
    if (place.room_bytes != 0 || place.at != nullptr) throw NotSupported("tiny has no rooms for memory");
    check_device(device);
    const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
    const std::lock_guard<std::mutex> lock(mutex_);
    const MemoryInfo memory = info_of(device);
    if (static_cast<int64_t>(rounded) > memory.free_bytes) {
      throw OutOfMemory("out of memory", device, static_cast<int64_t>(bytes), memory.free_bytes,
                        memory.total_bytes);
    }
    return take(device, kGranule, bytes, rounded);
  }
  void* allocate_host(size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return take(-1, 64, bytes, (bytes + 63) / 64 * 64);
  }
  void deallocate(void* address, size_t /*bytes*/) override {
    if (address == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ranges_.find(static_cast<char*>(address));
    if (found == ranges_.end() || !found->second.is_own) throw InvalidArgument("not allocated");
    ranges_.erase(found);
    std::free(address);
  }
  MemoryInfo memory_info(int device) const override {
    check_device(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    return info_of(device);
  }
  Address locate(const void* address) const noexcept override {
    auto* const where = const_cast<void*>(address);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto next = ranges_.upper_bound(static_cast<char*>(where));
    if (next == ranges_.begin()) return {AddressKind::kUnknown, -1, where, where};
    const auto& [begin, range] = *std::prev(next);
    if (static_cast<char*>(where) >= begin + range.bytes) return {AddressKind::kUnknown, -1, where, where};
    const bool is_pinned = range.device < 0;
    return {is_pinned ? AddressKind::kPinnedHost : AddressKind::kDevice, range.device, where, where};
  }
  void register_memory(int device, void* address, size_t bytes) override {
    if (address == nullptr || bytes == 0) throw InvalidArgument("no range of memory");
    if (device != -1) check_device(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_.insert({static_cast<char*>(address), {bytes, device, /*is_own=*/false}});
  }
  void unregister_memory(void* address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_.erase(static_cast<char*>(address));
  }
  SharedMemory share(int, const void*) override { throw NotSupported("tiny shares no memory"); }
  void* map_shared(int, const ShareHandle&, size_t) override { throw NotSupported("tiny shares no memory"); }

  Stream create_stream(int device, StreamOptions) override {
    check_device(device);
    return reinterpret_cast<Stream>(new TinyStream);
  }
  void destroy_stream(Stream stream) override { delete reinterpret_cast<TinyStream*>(stream); }
  // Nothing is ever pending: there is nothing to wait for, and so no call of Program::check_wait().
  bool query_stream(Stream stream) override {
    of<TinyStream>(stream, "stream");
    return true;
  }
  void synchronize_stream(Stream stream, OnFailure) override { of<TinyStream>(stream, "stream"); }
  bool runs_in_place(Stream) noexcept override { return true; }

  void submit(Stream stream, const Kernel& kernel) override {
    const std::unique_ptr<const Kernel, void (*)(const Kernel*)> released(
        &kernel, [](const Kernel* one) { one->release == nullptr ? void() : one->release(one->context); });
    const std::lock_guard<std::recursive_mutex> lock(of<TinyStream>(stream, "stream").mutex);
    kernel.run(kernel.context, stream);
  }
  void copy(Stream stream, void* destination, const void* source, size_t bytes) override {
    const std::lock_guard<std::recursive_mutex> lock(of<TinyStream>(stream, "stream").mutex);
    if (bytes != 0) std::memmove(destination, source, bytes);
  }
  void fill(Stream stream, void* destination, uint8_t value, size_t bytes) override {
    const std::lock_guard<std::recursive_mutex> lock(of<TinyStream>(stream, "stream").mutex);
    if (bytes != 0) std::memset(destination, value, bytes);
  }

  Event create_event(EventOptions options) override {
    return reinterpret_cast<Event>(new TinyEvent{options.timing});
  }
  void destroy_event(Event event) override { delete reinterpret_cast<TinyEvent*>(event); }
  void record_event(Event event, Stream stream) override {
    of<TinyStream>(stream, "stream");
    TinyEvent& what = of<TinyEvent>(event, "event");
    const std::lock_guard<std::mutex> lock(what.mutex);
    what.is_recorded = true;
    what.time_ns = program_.now_ns();  // the program's clock, and no other
  }
  void wait_event(Stream stream, Event event) override {
    of<TinyStream>(stream, "stream");
    of<TinyEvent>(event, "event");
  }
  bool query_event(Event event) override {
    of<TinyEvent>(event, "event");
    return true;
  }
  void synchronize_event(Event event) override { of<TinyEvent>(event, "event"); }
  int64_t elapsed_ns(Event start, Event end) override { return time_of(end) - time_of(start); }

 private:
  struct Range {
    size_t bytes;
    int device;  // -1: pinned
    bool is_own;
  };

  void check_device(int device) const {
    if (device >= 0 && device < config_.device_count) return;
    throw InvalidArgument("no device " + std::to_string(device));
  }
  static int64_t time_of(Event event) {
    TinyEvent& what = of<TinyEvent>(event, "event");
    const std::lock_guard<std::mutex> lock(what.mutex);
    if (!what.is_timed || !what.is_recorded) throw InvalidArgument("the event has no time");
    return what.time_ns;
  }
  // With the lock held.
  MemoryInfo info_of(int device) const {
    const int64_t total = config_.memory_bytes_of(device);
    int64_t used = 0;
    for (const auto& [begin, range] : ranges_) {
      if (range.device == device && range.is_own) used += static_cast<int64_t>(range.bytes);
    }
    return {total - used, total};
  }
  void* take(int device, size_t alignment, size_t bytes, size_t rounded) {
    if (bytes == 0) throw InvalidArgument("zero bytes");
    void* const address = std::aligned_alloc(alignment, rounded);
    if (address == nullptr) {
      throw OutOfMemory("the host is out of memory", device, static_cast<int64_t>(bytes), 0, 0);
    }
    ranges_[static_cast<char*>(address)] = {rounded, device, /*is_own=*/true};
    return address;
  }

  const DriverConfig config_;
  const Program& program_;
  const Info info_;
  mutable std::mutex mutex_;
  std::map<char*, Range> ranges_;
};

Driver* create(const DriverConfig& config) {
  if (config.protect) throw NotSupported("the driver tiny has no fence: unset TORCH_LOOM_PROTECT");
  if (config.launch == Launch::kChaos) {
    throw NotSupported("the driver tiny has no launch mode chaos: use auto or blocking");
  }
  return new TinyDriver(config);
}

}  // namespace

LOOM_DRIVER_LIBRARY(create);
