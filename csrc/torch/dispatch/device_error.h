// Errors that kernels of the program's own cause, as an access to memory that is not theirs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace loom::glue {

// The device has failed, as by note_device_assert(): CUDA's number of the error, and its text ("an illegal
// memory access was encountered"). Raises it at once where errors are no asserts.
void note_device_error(int32_t error, const char* title, const std::string& kernel, const std::string& reason,
                       std::string_view line);

}  // namespace loom::glue
