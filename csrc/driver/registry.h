// Drivers by name, and from libraries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace loom::driver {

// A driver by its name, or of the library at a path (a name with a slash in it). Throws InvalidArgument for
// an unknown name, listing the known ones; for a library that cannot be loaded, has no driver or one of
// another version of the contract; for a negative count or size; and where the driver has fewer devices.
std::unique_ptr<Driver> create_driver(const std::string& name, const DriverConfig& config);
// The built-in drivers; only registry.cpp lists them.
std::vector<std::string> driver_names();

}  // namespace loom::driver
