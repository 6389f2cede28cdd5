// What torch.use_deterministic_algorithms(True) refuses on a chip that does not give the same bits in every
// run.
#pragma once

#include <ATen/Context.h>

#include <cstdint>
#include <string_view>

#include "torch/core/device.h"

namespace loom::glue {

// One op's, generated from torch_loom/ops/nondeterminism.py, which says what each case means.
struct Alert {
  enum class Case : uint8_t { kAlways, kFloating, kWeights, kMaximum, kProduct, kBlas };

  const char* full_name;
  const char* kernel;
  Case when;
};

// Null: the op is deterministic.
const Alert* alert_of(std::string_view full_name);

// Raises, or warns, as the program chose, if the call is one of those that the alert is about. `arguments`
// may be empty for matrix products.
void raise_alert(const Alert& alert, c10::ArrayRef<c10::IValue> arguments, int device);

inline bool is_deterministic_wanted(const Alert* alert) {
  return alert != nullptr && at::globalContext().deterministicAlgorithms();
}

}  // namespace loom::glue
