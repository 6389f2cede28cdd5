// What the core keeps of a chip's description: plain data, handed down once, at first use. The description
// itself, with units and sources, is torch_loom/chips.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom::runtime {

// Kernels for what is several ops without them (torch_loom/ops). Where a chip has one, the work is one
// command on the stream, whether or not the engine has such a kernel; where it has none, the parts are
// commands of their own.
enum class FusedKernel : uint8_t {
#define LOOM_FUSED_KERNEL(enumerator, name) enumerator,
#include "runtime/generated/fused_kernels.inc"
#undef LOOM_FUSED_KERNEL
};

// What descriptions call them, by number.
inline constexpr std::string_view kFusedKernelNames[] = {
#define LOOM_FUSED_KERNEL(enumerator, name) name,
#include "runtime/generated/fused_kernels.inc"
#undef LOOM_FUSED_KERNEL
};

// A set of them: bit 1 << number.
using FusedKernels = uint32_t;

// How CUDA's kernels divide work over a chip, where random numbers are those of CUDA's kernels: which thread
// draws an element's follows from it.
struct RandomGrid {
  int num_cores = 0;         // 0: random numbers are not CUDA's
  int threads_per_core = 0;  // that a core holds
  bool vector_dropout = true;
  bool is_nvidia = false;  // a card whose own kernels these are

  bool is_given() const noexcept { return num_cores > 0; }
};

// What CUDA's runtime library says of a chip, by the names of its description; 0: not known.
struct Sizes {
  int64_t max_threads_per_core = 0, registers_per_core = 0;
  int64_t shared_memory_per_core_bytes = 0, shared_memory_per_block_optin_bytes = 0;
  int64_t l2_cache_bytes = 0, memory_clock_mhz = 0, memory_bus_bits = 0;
};

struct Chip {
  std::string name, description;
  int64_t memory_bytes = 0;
  bool lazy_memory = false;                            // the chip's own policy; Config::lazy is in force
  std::vector<std::string> dtypes, amp_dtypes;         // PyTorch's names
  std::optional<std::vector<std::string>> native_ops;  // not given: every op
  int capability_major = 0, capability_minor = 0;
  int num_cores = 0;  // 0: not known
  FusedKernels fused_kernels = 0;
  int64_t clock_mhz = 0;      // 0: not known
  bool deterministic = true;  // the same bits in every run; false: PyTorch's alerts are raised
  bool is_gpu = false;        // under the name cuda it refuses what CUDA has no kernel for
  RandomGrid random_grid;
  Sizes sizes;

  bool has(FusedKernel kernel) const noexcept {
    return (fused_kernels >> static_cast<unsigned>(kernel) & 1) != 0;
  }
};

// Nothing when a name is not one of kFusedKernelNames.
inline std::optional<FusedKernels> fused_kernels_of(const std::vector<std::string>& names) {
  FusedKernels found = 0;
  for (const std::string& name : names) {
    const auto* const known = std::ranges::find(kFusedKernelNames, name);
    if (known == std::end(kFusedKernelNames)) return std::nullopt;
    found |= FusedKernels{1} << (known - kFusedKernelNames);
  }
  return found;
}

}  // namespace loom::runtime
