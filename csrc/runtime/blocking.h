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

// What ends waits early: called now and then by a thread that waits for a device on behalf of the program,
// without a lock. What it throws leaves the wait; the device's work goes on. The torch glue runs Python's
// signal handlers in it. Null: nothing.
void set_interrupt_check(void (*check)()) noexcept;

// While it lives, waits of this thread may end early. It stands around single waits, each of which an
// exception may leave; what the runtime waits for by itself is never interrupted.
class Interruptible {
 public:
  Interruptible() noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  const bool was_;
};

}  // namespace loom::runtime
