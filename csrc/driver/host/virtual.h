// A chip made of host memory: kernels are the CPU's, on memory that the host can address.
#pragma once

#include "driver/host/host_driver.h"

namespace loom::driver {

class VirtualDriver final : public HostDriver {
 public:
  explicit VirtualDriver(const DriverConfig& config)
      : HostDriver({"virtual",
                    Engine::kCpu,
                    /*executes_kernels=*/true,
                    /*host_addressable=*/!config.protect,
                    {kNoSensors, kNoPriorities}},
                   config) {}
};

}  // namespace loom::driver
