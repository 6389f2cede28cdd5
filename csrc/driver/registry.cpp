#include "driver/registry.h"

#include "driver/host/null.h"
#include "driver/host/virtual.h"

namespace loom::driver {

std::vector<std::string> driver_names() { return {"virtual", "null"}; }

std::unique_ptr<Driver> create_driver(const std::string& name, const DriverConfig& config) {
  if (config.device_count < 0) {
    throw InvalidArgument("device_count must be 0 or more, got " + std::to_string(config.device_count));
  }
  if (config.memory_bytes < 0) {
    throw InvalidArgument("memory_bytes must be 0 or more, got " + std::to_string(config.memory_bytes));
  }
  if (name == "virtual") return std::make_unique<VirtualDriver>(config);
  if (name == "null") return std::make_unique<NullDriver>(config);
  std::string known;
  for (const auto& candidate : driver_names()) known += (known.empty() ? "" : ", ") + candidate;
  throw InvalidArgument("unknown driver '" + name + "'; known drivers: " + known);
}

}  // namespace loom::driver
