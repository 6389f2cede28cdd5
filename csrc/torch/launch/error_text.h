// CUDA's names and texts of errors, by number.
#pragma once

namespace loom::glue {

const char* error_text(int error);
const char* error_name(int error);

}  // namespace loom::glue
