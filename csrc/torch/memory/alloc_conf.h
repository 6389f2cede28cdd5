// PYTORCH_ALLOC_CONF: PyTorch's own parser reads it; what it lets pass is checked here.
#pragma once

#include <string>

#include "runtime/memory/allocator_config.h"

namespace loom::glue {

// Throws ValueError naming the key, its value and what is allowed.
void check_alloc_conf(const std::string& text);
// The settings in force: the environment's, or those set since. Throws as above.
runtime::AllocatorConfig current_alloc_conf();
// Hands the settings in force to all devices. From then on every change reaches them.
void apply_alloc_conf();

}  // namespace loom::glue
