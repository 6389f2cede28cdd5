// What torch.use_deterministic_algorithms(True) refuses on a chip that does not give the same bits in every
// run.
#pragma once

#include <ATen/Context.h>

#include <cstdint>
#include <functional>
#include <string_view>

#include "torch/core/device.h"

namespace loom::glue {

// One op's, generated from torch_loom/cuda/nondeterminism.py.
struct Alert {
  enum class Case : uint8_t {
#include "torch/generated/alert_cases.inc"
  };

  const char* full_name;
  const char* kernel;
  Case when;
};

// Null: the op is deterministic.
const Alert* alert_of(std::string_view full_name);

// Raises, or warns, as the program chose, if the call is one of those that the alert is about. `arguments`
// may be empty for matrix products.
void raise_alert(const Alert& alert, c10::ArrayRef<c10::IValue> arguments, int device);

// How to ask whether matrix products are deterministic, which is done once: at the first that needs to know.
void set_blas_determinism(std::function<bool()> is_deterministic);

inline bool is_deterministic_wanted(const Alert* alert) {
  return alert != nullptr && at::globalContext().deterministicAlgorithms();
}

}  // namespace loom::glue
