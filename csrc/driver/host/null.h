// A chip that accepts everything and executes nothing: addresses and accounting, no arithmetic. Memory cannot
// be touched, so reading it by mistake faults instead of giving a wrong number. Also the skeleton for a new
// driver.
#pragma once

#include "driver/host/host_driver.h"

namespace loom::driver {

class NullDriver final : public HostDriver {
 public:
  explicit NullDriver(const DriverConfig& config)
      : HostDriver({.name = "null",
                    .engine = "meta",
                    .device_count = config.device_count,
                    .executes_kernels = false,
                    .queues_kernels = false,
                    .sticky_failures = false,
                    .host_addressable = false,
                    .unified_addresses = true,
                    .peer_access = true,
                    .shared_memory = false,  // there are no contents that another process could see
                    .memory_rooms = true,
                    .stream_priorities = false,
                    .stream_activity = false},
                   config) {}
};

}  // namespace loom::driver
