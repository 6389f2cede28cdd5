// Drivers by name: registry.cpp is the one place that lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace loom::driver {

struct DriverConfig {
  int device_count;
  int64_t memory_bytes;  // per device
};

// Throws InvalidArgument for an unknown name, listing the known ones, and for a negative count or size.
std::unique_ptr<Driver> create_driver(const std::string& name, const DriverConfig& config);
std::vector<std::string> driver_names();

}  // namespace loom::driver
