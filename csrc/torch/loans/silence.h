// Kernels and shape functions that the program has not called itself.
#pragma once

#include <c10/util/Exception.h>

namespace loom::glue {

// While it lives, what C++ code in this thread warns of is dropped: the op itself warns of it when it runs.
class Silence {
  class Handler final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& /*warning*/) override {}
  };

  Handler handler_;
  const c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace loom::glue
