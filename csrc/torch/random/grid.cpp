#include "torch/random/grid.h"

#include <atomic>

#include "torch/core/device.h"

namespace loom::glue::cuda_random {

namespace {

enum class Rule : uint8_t { kAuto, kAll, kNone };
std::atomic<Rule> the_rule{Rule::kAuto};

}  // namespace

void set_rule(const std::string& rule) {
  TORCH_CHECK_VALUE(rule == "auto" || rule == "cuda" || rule == "loom",
                    "the rule of random numbers must be auto, cuda or loom, got ", rule);
  the_rule = rule == "auto" ? Rule::kAuto : rule == "cuda" ? Rule::kAll : Rule::kNone;
}

const RandomGrid* grid_of(int device) {
  const Rule rule = the_rule.load(std::memory_order_relaxed);
  if (rule == Rule::kNone) return nullptr;
  const runtime::Chip& chip = devices().device(device).chip();
  if (rule == Rule::kAuto && (device_type() != c10::DeviceType::CUDA || !chip.random_grid.is_nvidia))
    return nullptr;
  return chip.random_grid.is_given() ? &chip.random_grid : nullptr;
}

}  // namespace loom::glue::cuda_random
