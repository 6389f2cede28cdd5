// What this room registers (bindings/registration.cpp).
#pragma once

namespace loom::glue {

void register_ddp_timer();
void register_guard();
void register_hooks();

}  // namespace loom::glue
