// The process's devices: which driver, how many of its devices are visible, the current one, their streams
// and memory.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver/registry.h"
#include "runtime/chip.h"
#include "runtime/memory/caching_allocator.h"
#include "runtime/memory/lazy_stats.h"

namespace loom::runtime {

struct Config {
  std::string driver;
  int64_t memory_bytes;               // per device
  std::vector<int> physical_devices;  // logical index -> physical index
  Chip chip;
  bool lazy = false;            // device memory is taken when a device op first needs it
  std::string launch = "auto";  // "auto", "blocking" or "chaos"
  uint64_t chaos_seed = 0;
  bool protect = false;  // host access to device memory faults
};

// Streams come from a pool, as CUDA's do: so many of each priority, handed out in turn. Their ids are 1 … 32
// (priority 0) and 33 … 64 (priority −1, more urgent); 0 is the default stream.
constexpr int64_t kStreamsPerPriority = 32;
constexpr int64_t kNumStreamIds = 1 + 2 * kStreamsPerPriority;
constexpr int kHighestPriority = -1;

struct Device {
  int logical, physical;
  std::array<std::atomic<driver::Stream>, kNumStreamIds> streams{};  // null until handed out
  std::array<std::atomic<uint32_t>, 2> next_in_pool{};               // by −priority
  std::unique_ptr<CachingAllocator> allocator;
  LazyStats lazy_stats;
};

// The devices, once initialised. Never destroyed: tensors may outlive every other static object.
class Runtime {
 public:
  explicit Runtime(const Config& config);

  driver::Driver& driver() const { return *driver_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  // Throws InvalidArgument for an index outside 0 … device_count() − 1.
  Device& device(int index) const;
  // The driver's stream of an id. Throws InvalidArgument for an id that new_stream() did not return.
  driver::Stream stream(int device, int64_t id) const;
  // The next stream of the pool of a priority; what is below kHighestPriority counts as that, what is above 0
  // as 0. Streams live as long as the process.
  int64_t new_stream(int device, int priority);
  // Device and id of the stream that the driver knows by this handle; a device of −1 when there is none. Any
  // address may be asked about: it is compared, and not looked at.
  std::pair<int, int64_t> find_stream(const void* handle) const noexcept;
  static int priority_of(int64_t id) noexcept { return id > kStreamsPerPriority ? kHighestPriority : 0; }
  // All streams handed out so far, the default one first.
  std::vector<driver::Stream> streams(int device) const;
  // Waits for all streams of a device.
  void synchronize(int device) const;
  // The device whose memory holds `address`, or -1.
  int device_of(const void* address) const noexcept;
  bool runs_kernels() const { return runs_kernels_; }
  // Where the engine's kernels reach what lies at an address of the device, and back: the same address unless
  // device memory is fenced off from the host.
  void* engine_address(const void* address) const noexcept {
    return is_fenced_ ? driver_->engine_address(address) : const_cast<void*>(address);
  }
  void* device_address(const void* address) const noexcept {
    return const_cast<void*>(is_fenced_ ? driver_->locate(address).device_address : address);
  }
  bool is_fenced() const noexcept { return is_fenced_; }
  // What the devices were made from.
  const Config& config() const { return config_; }

 private:
  const Config config_;
  std::unique_ptr<driver::Driver> driver_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<int> logical_of_physical_;
  bool runs_kernels_, is_fenced_;
  mutable std::mutex streams_mutex_;
};

// Called, once, when a device is first used and nobody has called initialize(); it must call it or throw.
void set_initializer(std::function<void()> initializer);
// Throws InvalidArgument when called twice.
void initialize(const Config& config);
bool is_initialized() noexcept;
// The devices; initialises at first use. Throws Unusable in a forked child of a process that had used a
// device.
Runtime& get();

// True in a child forked after initialisation: device memory and workers did not come along.
bool in_bad_fork() noexcept;

// The current device of this thread. set_ does not check: the torch glue does, with PyTorch's own message.
int current_device() noexcept;
void set_current_device(int index) noexcept;

// The stream, by id, that work of this thread goes to on a device; 0 is the default stream.
int64_t current_stream(int device) noexcept;
void set_current_stream(int device, int64_t stream) noexcept;

namespace detail {
extern std::atomic<Runtime*> instance;
extern std::atomic<bool> bad_fork;
Runtime& get_slow();
}  // namespace detail

inline Runtime& get() {
  Runtime* runtime = detail::instance.load(std::memory_order_acquire);
  if (runtime != nullptr && !detail::bad_fork.load(std::memory_order_relaxed)) [[likely]] {
    return *runtime;
  }
  return detail::get_slow();
}

inline bool in_bad_fork() noexcept { return detail::bad_fork.load(std::memory_order_relaxed); }

}  // namespace loom::runtime
