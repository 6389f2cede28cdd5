#include "random/kernels.h"

#include <string_view>

namespace loom::random {

namespace baseline {
const Kernels& table();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels& table();
}
#endif

const Kernels* kernels_named(const char* name) {
  const std::string_view wanted = name;
#if defined(__x86_64__)
  if (wanted == "avx2") {
    const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return has ? &avx2::table() : nullptr;
  }
#endif
  return wanted == "baseline" ? &baseline::table() : nullptr;
}

const Kernels& kernels() {
  static const Kernels* best = [] {
    const Kernels* found = kernels_named("avx2");
    return found != nullptr ? found : kernels_named("baseline");
  }();
  return *best;
}

}  // namespace loom::random
