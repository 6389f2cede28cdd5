// Stacks of their own for the threads of a block that wait. A switch saves what a called function must keep,
// and costs a few nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace loom::cuda_cpp {

// Where a stack goes on: all else is on the stack.
using StackPointer = void*;

// A stack, and the function that runs on it. The function never returns: it switches away at its end.
class Fiber {
 public:
  // Bytes of a stack; the operating system commits a page of it when it is touched.
  static constexpr size_t kStackBytes = size_t{1} << 20;
  // Below it, and faults.
  static constexpr size_t kGuardBytes = 4096;

  explicit Fiber(char* stack, size_t color) : stack_(stack), color_(color) {}
  // The next switch to it calls `entry`. What was on the stack is forgotten.
  void restart(void (*entry)());
  bool holds(uintptr_t address) const noexcept {
    const auto first = reinterpret_cast<uintptr_t>(stack_);
    return address >= first && address < first + kStackBytes;
  }

  bool has_guard_at(uintptr_t address) const noexcept {
    const auto first = reinterpret_cast<uintptr_t>(stack_);
    return address < first && address >= first - kGuardBytes;
  }
  uintptr_t top() const noexcept { return reinterpret_cast<uintptr_t>(stack_) + kStackBytes; }

  StackPointer pointer = nullptr;
  Fiber* next = nullptr;  // in a list

 private:
  char* const stack_;
  const size_t color_;  // moves the top of the stack, so that tops of many do not share cache lines' places
};

// Goes on where `to` has stopped; returns when something switches back to `from`.
void switch_stack(StackPointer& from, StackPointer to);

// Stacks of one thread of the host. Below each is a page that faults.
class FiberPool {
 public:
  FiberPool() = default;
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // Throws std::bad_alloc.
  Fiber* take();
  void give_back(Fiber* fiber) { idle_.push_back(fiber); }
  // Also where some of them have been given back.
  void take_back(const std::vector<Fiber*>& fibers);

 private:
  void grow();

  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_;
  std::vector<char*> slabs_;
};

}  // namespace loom::cuda_cpp
