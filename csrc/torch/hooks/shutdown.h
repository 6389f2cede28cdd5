#pragma once

namespace loom::glue {

// Ends the autograd engine's device threads, and returns when they are gone (after two seconds at most).
// To be called, without the GIL, before Python finalises: a thread that asks for the GIL later than that is
// ended in the middle of a destructor, which aborts the process.
void stop_autograd_threads();

}  // namespace loom::glue
