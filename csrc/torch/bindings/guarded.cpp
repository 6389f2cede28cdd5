#include "torch/bindings/guarded.h"

#include <torch/csrc/Exceptions.h>

namespace loom::glue::detail {

void run_guarded(c10::function_ref<void()> body) {
  HANDLE_TH_ERRORS
  body();
  END_HANDLE_TH_ERRORS_PYBIND
}

}  // namespace loom::glue::detail
