#pragma once

#include <c10/core/Storage.h>

namespace loom::glue {

// Gives a loom storage memory of another size; what fits of its contents is kept.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace loom::glue
