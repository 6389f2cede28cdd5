// A chip made of host memory: kernels are the CPU's, on memory that the host can address.
#pragma once

#include "driver/host/host_driver.h"

namespace loom::driver {

class VirtualDriver final : public HostDriver {
 public:
  explicit VirtualDriver(const DriverConfig& config)
      : HostDriver({.name = "virtual",
                    .engine = "cpu",
                    .device_count = config.device_count,
                    .executes_kernels = true,
                    .queues_kernels = config.launch != Launch::kBlocking,
                    .sticky_failures = false,
                    .host_addressable = !config.protect,
                    .unified_addresses = !config.protect,
                    .peer_access = true,
                    .shared_memory = true,
                    .memory_rooms = true,
                    .stream_priorities = false,  // the host's scheduler shares its cores among the workers
                    .stream_activity = true,
                    .commits_late = true},
                   config) {}
};

}  // namespace loom::driver
