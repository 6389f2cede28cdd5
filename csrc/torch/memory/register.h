// What this room registers (bindings/registration.cpp).
#pragma once

namespace loom::glue {

void register_alloc_conf();
void register_allocator();
void register_host_allocator();
void register_storages();

}  // namespace loom::glue
