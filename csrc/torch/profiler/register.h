// What this room registers (bindings/registration.cpp).
#pragma once

namespace loom::glue {

void register_stubs();
void register_kineto_profiler();

}  // namespace loom::glue
