// What the processes of a machine do with its devices, read from what they publish: the figures of
// torch_loom/device/telemetry/activity.py, for processes that have no Python, or no torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loom::nvml {

// Shares of the last second, 0 … 1.
struct Busy {
  double kernels = 0, kernels_or_copies = 0;
};

struct Process {
  int pid = 0;
  uint64_t memory_bytes = 0;
  Busy busy;
};

struct Use {
  std::vector<Process> processes;
  Busy busy;

  uint64_t memory_bytes() const;
};

// What all processes of this user do with a device of a machine, by its physical index. It opens no file that
// this process has published: to close that would give up the lock that says it is alive.
Use use_of(const std::string& machine, int physical);

// What was busy as a whole number, 1 … 100 for what was busy at all.
unsigned percent(double share);

}  // namespace loom::nvml
