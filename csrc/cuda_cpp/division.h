// Divisions of whole numbers that the host's processor stops at, and a GPU does not.
#pragma once

#include <ucontext.h>

namespace loom::cuda_cpp {

// At a division that the processor has stopped at: gives its registers what a GPU computes, and goes on
// behind it. False: no division stands there.
bool finish_division(ucontext_t& context) noexcept;

}  // namespace loom::cuda_cpp
