#include "runtime/blocking.h"

#include <atomic>
#include <utility>

#include "util/waiting.h"

namespace loom::runtime {

namespace {

std::atomic<BlockingCall> current_blocking_call{nullptr};
std::atomic<void (*)()> interrupt_check{nullptr};
thread_local bool is_interruptible = false;

// Code of the program's runs in the check: its waits are its own.
struct Suspended {
  const bool was = std::exchange(is_interruptible, false);
  ~Suspended() { is_interruptible = was; }
};

void check_interrupts() {
  if (!is_interruptible) return;
  const Suspended suspended;
  if (void (*const check)() = interrupt_check.load(std::memory_order_acquire)) check();
}

}  // namespace

void set_blocking_call(BlockingCall call) noexcept { current_blocking_call = call; }

BlockingCall blocking_call() noexcept { return current_blocking_call; }

void set_interrupt_check(void (*check)()) noexcept {
  interrupt_check.store(check, std::memory_order_release);
  set_wait_check(check == nullptr ? nullptr : &check_interrupts);
}

Interruptible::Interruptible() noexcept : was_(std::exchange(is_interruptible, true)) {}
Interruptible::~Interruptible() { is_interruptible = was_; }

}  // namespace loom::runtime
