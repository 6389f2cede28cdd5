// The process's devices: those of the program, the current one, and where an address belongs. A dry run has
// devices of its own beside them (worlds.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/registry.h"
#include "runtime/device.h"

namespace loom::runtime {

struct Config {
  std::vector<DeviceConfig> devices;  // by the program's index
  std::string launch = "auto";        // "auto", "blocking" or "chaos"
  uint64_t chaos_seed = 0;
  bool protect = false;  // host access to device memory faults
};

// Where an address lies. `device` is null unless `kind` is kDevice.
struct Place {
  driver::AddressKind kind = driver::AddressKind::kUnknown;
  Device* device = nullptr;
  void* device_address = nullptr;  // as driver::Address has them
  void* engine_address = nullptr;
};

// Devices that one program sees at a time, numbered from 0. Devices of one driver's name share its driver.
class Runtime {
 public:
  // `world`: 0 are the program's devices; each dry run has another number.
  explicit Runtime(const Config& config, int64_t world = 0);

  int device_count() const noexcept { return static_cast<int>(devices_.size()); }
  // Throws InvalidArgument for an index outside 0 … device_count() − 1.
  Device& device(int index) const {
    if (static_cast<size_t>(index) < devices_.size()) [[likely]] {
      return *devices_[static_cast<size_t>(index)];
    }
    throw_no_device(index);
  }
  int64_t world() const noexcept { return world_; }
  // Begins the order of the launch mode chaos again with a seed; the devices are synchronised.
  void set_chaos_seed(uint64_t seed);
  // Under the launch mode chaos the next number that its seed decides; nothing in other modes.
  std::optional<uint64_t> draw() noexcept;

  // As the device's methods.
  driver::Stream stream(int device_index, int64_t id) const { return device(device_index).stream(id); }
  // Device and id of the stream that its driver knows by this handle; a device of −1 when there is none.
  std::pair<int, int64_t> find_stream(const void* handle) const noexcept;
  static int priority_of(int64_t id) noexcept {
    const int64_t place = id & ((int64_t{1} << kStreamIdBits) - 1);
    return place == 0 ? 0 : -static_cast<int>((place - 1) / kStreamsPerPriority);
  }

  // Where an address lies among these devices.
  Place locate(const void* address) const noexcept;
  // The device whose memory holds `address`, or -1.
  int device_of(const void* address) const noexcept {
    const Place place = locate(address);
    return place.device == nullptr ? -1 : place.device->logical;
  }
  // Where the engine's kernels reach what lies at an address of a device, and back: the same address unless
  // a driver says that they differ.
  void* engine_address(const void* address) const noexcept {
    return is_fenced_ ? locate(address).engine_address : const_cast<void*>(address);
  }
  void* device_address(const void* address) const noexcept {
    return is_fenced_ ? locate(address).device_address : const_cast<void*>(address);
  }
  bool is_fenced() const noexcept { return is_fenced_; }
  bool has_lazy_devices() const noexcept { return has_lazy_devices_; }
  bool has_several_drivers() const noexcept { return drivers_.size() > 1; }
  // What the devices were made from.
  const Config& config() const { return config_; }
  // Whose events need no entry in worlds' table.
  const driver::Driver* first_driver() const noexcept {
    return drivers_.empty() ? nullptr : drivers_[0].driver.get();
  }

 private:
  struct Shared {
    std::string name;  // that the devices ask for
    std::unique_ptr<driver::Driver> driver;
    std::vector<Device*> devices;  // by the driver's index
  };

  [[noreturn]] void throw_no_device(int index) const;
  void create_drivers();

  const Config config_;
  const int64_t world_;
  std::vector<Shared> drivers_;  // outlive the devices
  std::vector<std::unique_ptr<Device>> devices_;
  bool is_fenced_ = false, has_lazy_devices_ = false;
  std::atomic<uint64_t> drawn_;  // the state of draw()
};

// Called with each new device before it is published: the torch glue adds what it knows. Null: no hook.
void set_device_hook(void (*hook)(Device& device)) noexcept;

// Called once, if a device is first used before initialize(); it must call initialize() or throw.
void set_initializer(std::function<void()> initializer);
// Makes the program's devices, which are never destroyed: tensors may outlive every other static object.
// Throws InvalidArgument when called twice.
void initialize(const Config& config);
bool is_initialized() noexcept;
// The devices that the program sees now; initialises at first use. Throws Unusable in a forked child of a
// process that had used a device.
Runtime& get();

// True in a child forked after initialisation: device memory and workers did not come along.
bool in_bad_fork() noexcept;

// The current device of this thread, among those that the program sees now. set_ does not check: the torch
// glue does, with PyTorch's own message.
int current_device() noexcept;
void set_current_device(int index) noexcept;

// The stream, by id, that work of this thread goes to on a device; 0 is the default stream.
int64_t current_stream(int device) noexcept;
void set_current_stream(int device, int64_t stream) noexcept;

namespace detail {
extern std::atomic<Runtime*> instance;  // what the program sees now
extern std::atomic<int64_t> world;      // its number
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
