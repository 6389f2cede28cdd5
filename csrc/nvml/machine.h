// The devices of the machine, as the variable TORCH_LOOM_NVML describes them (torch_loom/nvml writes it).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nvml/abi.h"

namespace loom::nvml {

// Figures are those of the chip's description, in its units; 0: not known.
struct Device {
  int index = 0;  // the physical one
  std::string name, uuid;
  uint64_t memory_bytes = 0, driver_memory_bytes = 0;  // the driver's: of the former
  int capability_major = 0, capability_minor = 0, num_cores = 0;
  double power_idle_watts = 0, power_max_watts = 0;
  int temperature_idle_celsius = 0, temperature_max_celsius = 0;
  int clock_mhz = 0, clock_idle_mhz = 0, memory_clock_mhz = 0, memory_bus_bits = 0, num_links = 0;
  double link_gbps = 0;

  bool is_of_nvidia() const { return name.compare(0, 6, "NVIDIA") == 0; }
  bool has_ecc() const { return is_of_nvidia() && memory_bus_bits >= 1024; }  // cards for servers
};

struct Machine {
  std::string text;  // what it was read from
  std::string name, driver_version;
  int cuda_version = 0;  // 12080 is 12.8
  std::vector<Device> devices;

  const Device* find(Handle handle) const;
};

// Reads the description in the environment; where that is none, or was made under other settings, has the
// package describe the devices. Throws std::runtime_error if that fails.
Machine read_machine();

}  // namespace loom::nvml
