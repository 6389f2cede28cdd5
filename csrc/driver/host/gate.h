// Keeps kernels out for a moment. Memory must not move while a kernel uses it, so a thread that moves device
// memory closes the gate, and every kernel passes it at its start and its end.
#pragma once

#include <atomic>
#include <functional>

#include "util/thread_local.h"

namespace loom::driver::gate {

namespace detail {
extern std::atomic<bool> is_closed;
// This thread's; null until it first enters.
LOOM_FAST_ACCESS extern constinit thread_local std::atomic<bool>* is_inside;
std::atomic<bool>& join();
void wait_and_enter(std::atomic<bool>& inside) noexcept;
}  // namespace detail

// This thread begins to run a kernel: waits while the gate is closed. Not to be nested.
inline void enter() {
  std::atomic<bool>& inside = detail::is_inside != nullptr ? *detail::is_inside : detail::join();
  // In one order with the closing: either this thread sees a closed gate, or the closing thread sees this
  // one.
  inside.exchange(true, std::memory_order_seq_cst);
  if (detail::is_closed.load(std::memory_order_seq_cst)) [[unlikely]] {
    detail::wait_and_enter(inside);
  }
}

inline void leave() noexcept { detail::is_inside->store(false, std::memory_order_release); }

// Calls `body` while no other thread runs a kernel, and returns what it returns. Kernels may wait for each
// other: the gate opens again, for a while, if one does not end soon. The calling thread may be in a kernel.
void while_closed(const std::function<void()>& body);

}  // namespace loom::driver::gate
