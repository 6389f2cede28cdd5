// One device of the program: its driver, its chip, its streams and its memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "runtime/chip.h"
#include "runtime/memory/caching_allocator.h"
#include "runtime/memory/lazy_stats.h"

namespace loom::runtime {

class Runtime;

// What a device is made from.
struct DeviceConfig {
  int physical = 0;    // its place in the machine
  std::string driver;  // by the names of driver/registry.h
  int64_t memory_bytes = 0;
  int64_t context_bytes = 0;  // of them, what the process itself takes
  Chip chip{};
  bool lazy = false;  // device memory is taken when a device op first needs it
};

// A driver's engine in PyTorch's numbers: a c10::DeviceType, and the bits of the key set that finds its
// kernels.
struct Engine {
  int8_t type = 0;
  uint64_t keys = 0;
};

// Streams come from a pool, as CUDA's do: so many of each priority, handed out in turn. The ids of the
// program's devices are 1 … 32 (priority 0), 33 … 64 (priority −1, more urgent) and so on; those of a dry
// run's devices have its world's number above these 8 bits, so that no id means two streams. 0 is the default
// stream of every device.
constexpr int64_t kStreamsPerPriority = 32;
constexpr int kHighestPriority = -3;  // of PyTorch on GPUs, which have more
constexpr int64_t kNumStreamIds = 1 + (1 - kHighestPriority) * kStreamsPerPriority;
constexpr int kStreamIdBits = 8;

class Device {
 public:
  // `driver_index`: what its driver calls it.
  Device(Runtime& runtime, const DeviceConfig& config, int logical, driver::Driver& driver, int driver_index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The devices that it is one of: the program's, or a dry run's.
  Runtime& runtime() const noexcept { return runtime_; }
  driver::Driver& driver() const noexcept { return driver_; }
  const Chip& chip() const noexcept { return config_.chip; }
  const DeviceConfig& config() const noexcept { return config_; }
  // What the torch glue made of driver().info().engine, the device type whose kernels do the arithmetic.
  const Engine& engine() const noexcept { return engine_; }
  void set_engine(const Engine& engine) noexcept { engine_ = engine; }
  bool runs_kernels() const noexcept { return runs_kernels_; }
  bool is_lazy() const noexcept { return is_lazy_.load(std::memory_order_relaxed); }
  void set_lazy(bool is_lazy) noexcept { is_lazy_.store(is_lazy, std::memory_order_relaxed); }

  // The driver's stream of an id. Throws InvalidArgument for an id that new_stream() did not return.
  driver::Stream stream(int64_t id) const {
    const int64_t place = id == 0 ? 0 : id - first_id_;
    if (place > 0 ? place < kNumStreamIds : id == 0) [[likely]] {
      const driver::Stream stream = streams_[static_cast<size_t>(place)].load(std::memory_order_acquire);
      if (stream != nullptr) [[likely]] {
        return stream;
      }
    }
    throw_no_stream(id);
  }
  // The next stream of the pool of a priority; what is below kHighestPriority counts as that, what is above 0
  // as 0. Streams live as long as the device.
  int64_t new_stream(int priority);
  // The id of the stream that the driver knows by this handle, or −1. Any address may be asked about: it is
  // compared, and not looked at.
  int64_t find_stream(const void* handle) const noexcept;
  // All streams handed out so far, the default one first.
  std::vector<driver::Stream> streams() const;
  // The runtime's internal stream, never given to a program: for its own work that must not block the caller.
  driver::Stream side_stream();
  // Whether the program has used it: memory, or a stream besides the default one.
  bool is_used() const { return allocator->has_reserved() || streams().size() > 1; }
  // Waits for all streams.
  void synchronize() const;

  const int logical;       // the index that the program knows it by
  const int physical;      // its place in the machine
  const int driver_index;  // its index among the driver's devices
  std::unique_ptr<CachingAllocator> allocator;
  LazyStats lazy_stats;
  // What the torch glue derived from the chip before the device was published: see torch/ops/fallback.h.
  int chip_kind = 0;
  uint64_t watched_dtypes = 0;

 private:
  [[noreturn]] void throw_no_stream(int64_t id) const;
  driver::Stream create_stream(int64_t place, driver::StreamOptions options) const;

  Runtime& runtime_;
  const DeviceConfig config_;
  std::atomic<bool> is_lazy_{config_.lazy};
  driver::Driver& driver_;
  const bool runs_kernels_;
  void* context_ = nullptr;  // memory that the process takes before any tensor
  Engine engine_;
  const int64_t first_id_;                                                  // of its streams, less 1
  std::array<std::atomic<driver::Stream>, kNumStreamIds> streams_{};        // null until handed out
  std::array<std::atomic<uint32_t>, 1 - kHighestPriority> next_in_pool_{};  // by −priority
  std::atomic<driver::Stream> side_stream_{nullptr};
  std::mutex streams_mutex_;
};

}  // namespace loom::runtime
