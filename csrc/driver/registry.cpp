#include "driver/registry.h"

#include <dlfcn.h>

#include <algorithm>

#include "driver/host/host_driver.h"
#include "driver/host/null.h"
#include "driver/host/virtual.h"
#include "util/clock.h"
#include "util/waiting.h"

namespace loom::driver {

namespace {

constexpr Program kProgram{&clock::now_ns, &clock::ticks, &check_wait};

std::unique_ptr<Driver> create_from_library(const std::string& path, DriverConfig config) {
  if (config.program == nullptr) config.program = &kProgram;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw InvalidArgument("cannot load the driver of " + path + ": " +
                          (reason != nullptr ? reason : "no reason given"));
  }
  const auto* const entry = static_cast<const DriverLibrary*>(dlsym(library, "loom_driver"));
  if (entry == nullptr) {
    throw InvalidArgument(path + " has no driver: one of its files must say LOOM_DRIVER_LIBRARY(create)");
  }
  if (entry->contract != kContractVersion) {
    throw InvalidArgument("the driver of " + path + " was compiled against version " +
                          std::to_string(entry->contract) + " of the contract, and this is version " +
                          std::to_string(kContractVersion) + ": compile it against this one's driver.h");
  }
  std::unique_ptr<Driver> driver(entry->create(config));
  if (driver == nullptr) throw InvalidArgument("the driver of " + path + " returned no driver");
  if (driver->info().device_count < config.device_count) {
    throw InvalidArgument("the driver of " + path + " has " + std::to_string(driver->info().device_count) +
                          " devices, and " + std::to_string(config.device_count) + " are asked for");
  }
  return driver;
}

}  // namespace

void set_chaos_seed(Driver& driver, uint64_t seed) {
  auto* const host = dynamic_cast<HostDriver*>(&driver);
  if (host == nullptr) throw NotSupported("set_chaos_seed: this driver has no launch mode chaos");
  host->set_chaos_seed(seed);
}

std::vector<std::string> driver_names() { return {"virtual", "null"}; }

std::unique_ptr<Driver> create_driver(const std::string& name, const DriverConfig& config) {
  if (config.device_count < 0) {
    throw InvalidArgument("device_count must be 0 or more, got " + std::to_string(config.device_count));
  }
  if (const size_t given = config.device_memory_bytes.size();
      given != 0 && given != static_cast<size_t>(config.device_count)) {
    throw InvalidArgument("device_memory_bytes must be one size a device, got " + std::to_string(given) +
                          " for " + std::to_string(config.device_count) + " devices");
  }
  for (int device = 0; device < std::max(config.device_count, 1); ++device) {
    const int64_t bytes = config.memory_bytes_of(device);
    if (bytes < 0) throw InvalidArgument("memory_bytes must be 0 or more, got " + std::to_string(bytes));
  }
  if (name == "virtual") return std::make_unique<VirtualDriver>(config);
  if (name == "null") return std::make_unique<NullDriver>(config);
  if (name.find('/') != std::string::npos) return create_from_library(name, config);
  std::string known;
  for (const auto& candidate : driver_names()) known += (known.empty() ? "" : ", ") + candidate;
  throw InvalidArgument("unknown driver '" + name + "'; known drivers: " + known +
                        ", or the path of a library that has one");
}

}  // namespace loom::driver
