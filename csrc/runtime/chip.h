// What the core keeps of a chip's description: plain data, handed down once, at first use. The description
// itself, with units and sources, is torch_loom/chips.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loom::runtime {

struct Chip {
  std::string name, description;
  int64_t memory_bytes = 0;
  bool lazy_memory = false;                     // the chip's own policy; Config::lazy is the one in force
  std::vector<std::string> dtypes, amp_dtypes;  // PyTorch's names
  std::optional<std::vector<std::string>> native_ops;  // not given: every op
  int capability_major = 0, capability_minor = 0;
  int num_cores = 0;      // 0: not known
  int64_t clock_mhz = 0;  // 0: not known
};

}  // namespace loom::runtime
