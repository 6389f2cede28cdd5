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
// Begins the order of Launch::kChaos again, as with this chaos_seed, while all streams are idle. Throws
// NotSupported under other launch modes, and where the driver is no built-in driver.
void set_chaos_seed(Driver& driver, uint64_t seed);
// The built-in drivers; only registry.cpp lists them.
std::vector<std::string> driver_names();

}  // namespace loom::driver
