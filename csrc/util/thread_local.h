// Thread-local variables on the path of every op.
//
// In a library that is loaded while the program runs, each use of a thread-local is a call. LOOM_FAST_ACCESS,
// in front of the declaration, makes it an instruction:
//
//   LOOM_FAST_ACCESS constinit thread_local int* mine = nullptr;
//
// The price is paid in room that the loader keeps for libraries of this kind (1.6 KiB with glibc), by all
// thread-locals of the library: what is large hangs on a pointer (tests/test_thread_locals.py has the limit).
// `constinit` and a type without a destructor, or each use asks whether the variable has been made.
#pragma once

#define LOOM_FAST_ACCESS [[gnu::tls_model("initial-exec")]]
