// Drivers by name: registry.cpp is the one place that lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace loom::driver {

enum class Launch {
  kAuto,      // as StreamOptions say
  kBlocking,  // every kernel, copy and fill is in place: failures leave the call that caused them
  // No workers: everything is queued, and run by the threads that submit, ask or wait, in an order drawn from
  // chaos_seed among all that the recorded waits allow. With one host thread the same seed is the same order.
  kChaos,
};

struct DriverConfig {
  int device_count;
  int64_t memory_bytes;  // per device
  Launch launch = Launch::kAuto;
  uint64_t chaos_seed = 0;
  bool protect = false;  // fences device memory off: a host access through allocate()'s addresses faults
  std::vector<int64_t> device_memory_bytes{};  // of each device, in the place of memory_bytes; empty: all alike

  int64_t memory_bytes_of(int device) const {
    return device_memory_bytes.empty() ? memory_bytes : device_memory_bytes[static_cast<size_t>(device)];
  }
};

// Throws InvalidArgument for an unknown name, listing the known ones, and for a negative count or size.
std::unique_ptr<Driver> create_driver(const std::string& name, const DriverConfig& config);
std::vector<std::string> driver_names();

}  // namespace loom::driver
