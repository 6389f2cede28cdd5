// Calls that may block for long.
#pragma once

#include <type_traits>

namespace loom::runtime {

// Calls to a driver that may block go through this: the torch glue lets go of Python's lock for their length,
// since the work that is waited for may need it. It calls `body(context)` once.
using BlockingCall = void (*)(void (*body)(void*), void* context);
void set_blocking_call(BlockingCall call) noexcept;
BlockingCall blocking_call() noexcept;

template <typename F>
void call_blocking(F&& body) {
  const auto run = [](void* context) { (*static_cast<std::remove_reference_t<F>*>(context))(); };
  if (const BlockingCall call = blocking_call()) {
    call(run, &body);
  } else {
    body();
  }
}

}  // namespace loom::runtime
