#include "torch/cuda/alerts.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "util/sorted_rows.h"

namespace loom::glue {

namespace {

// Sorted by name.
constexpr Alert kAlerts[] = {
#include "torch/generated/alerts.inc"
};

constexpr int64_t kMaximumMode = 2;

// In both gradients of embedding_bag, the mode follows the only flag before it.
int64_t mode_of_bags(c10::ArrayRef<c10::IValue> arguments) {
  const auto* const flag = std::find_if(arguments.begin(), arguments.end(),
                                        [](const c10::IValue& value) { return value.isBool(); });
  return flag[1].toInt();
}

// Leaked, so that no Python object is released after the interpreter has gone. Empty: nothing needs to be
// set.
std::function<bool()>& blas_determinism() {
  static auto* const is_deterministic = new std::function<bool()>;
  return *is_deterministic;
}

bool is_blas_deterministic() {
  enum class Answer : uint8_t { kUnknown, kNo, kYes };
  // Two threads may both ask, which needs Python's lock: none waits for the other's answer.
  static std::atomic<Answer> answer{Answer::kUnknown};
  if (answer.load() == Answer::kUnknown) {
    const auto& ask = blas_determinism();
    answer.store(!ask || ask() ? Answer::kYes : Answer::kNo);
  }
  return answer.load() == Answer::kYes;
}

[[gnu::cold]] void refuse_blas() {
  constexpr const char* kText =
      "Deterministic behavior was enabled, but this operation is not deterministic because it uses CuBLAS "
      "and "
      "you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an environment "
      "variable before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or "
      "CUBLAS_WORKSPACE_CONFIG=:16:8";
  TORCH_CHECK(at::globalContext().deterministicAlgorithmsWarnOnly(), kText);
  TORCH_WARN(kText);
}

bool concerns(Alert::Case when, c10::ArrayRef<c10::IValue> arguments) {
  switch (when) {
    case Alert::Case::kAlways:
      return true;
    case Alert::Case::kFloating:
      return arguments[0].toTensor().is_floating_point() || arguments[0].toTensor().is_complex();
    case Alert::Case::kWeights:
      return arguments[1].isTensor() && arguments[1].toTensor().defined();
    case Alert::Case::kMaximum:
      return mode_of_bags(arguments) == kMaximumMode;
    case Alert::Case::kProduct:
      return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
        return value.isString() && value.toStringView() == "prod";
      });
    case Alert::Case::kBlas:
      return !is_blas_deterministic();
  }
  return false;
}

}  // namespace

const Alert* alert_of(std::string_view full_name) { return find_row(kAlerts, full_name); }

void set_blas_determinism(std::function<bool()> is_deterministic) {
  blas_determinism() = std::move(is_deterministic);
}

void raise_alert(const Alert& alert, c10::ArrayRef<c10::IValue> arguments, int device) {
  if (devices().device(device).chip().deterministic || !concerns(alert.when, arguments)) return;
  if (alert.when == Alert::Case::kBlas) return refuse_blas();
  at::globalContext().alertNotDeterministic(alert.kernel);
}

}  // namespace loom::glue
