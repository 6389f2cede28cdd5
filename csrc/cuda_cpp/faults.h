// What the host's processor stops at in a kernel: a division that a GPU has a value for, a stack that is used
// up, and an address where there is no memory.
#pragma once

#include <memory>

namespace loom::cuda_cpp {

// Where signals are handled that come when a thread of the host has no stack left.
class SignalStack {
 public:
  // Gives the calling thread one, unless it has one.
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

// Handles these signals in threads that run a kernel, once for all; others go where they went before.
void handle_faults();

}  // namespace loom::cuda_cpp
