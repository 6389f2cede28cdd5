// A chip that accepts everything and executes nothing: addresses and accounting, no arithmetic. Memory cannot
// be touched, so reading it by mistake faults instead of giving a wrong number. Also the skeleton for a new
// driver.
#pragma once

#include "driver/host/host_driver.h"

namespace loom::driver {

class NullDriver final : public HostDriver {
 public:
  explicit NullDriver(const DriverConfig& config)
      : HostDriver({"null",
                    Engine::kMeta,
                    /*executes_kernels=*/false,
                    /*host_addressable=*/false,
                    {kNoSensors, kNoPriorities,
                     "share: device memory has no contents that another process could see",
                     "map_shared: device memory has no contents that another process could see",
                     "submit: kernels are accepted and released, not run: this driver has no arithmetic",
                     "copy: bytes are not moved: device memory has no contents",
                     "fill: bytes are not set: device memory has no contents"}},
                   config) {}
};

}  // namespace loom::driver
