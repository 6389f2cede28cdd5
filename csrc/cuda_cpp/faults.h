// What the host's processor stops at in a kernel: a division that a GPU has a value for, a stack that is used
// up, an address where there is no memory, and a signal where the kernel has taken too long.
#pragma once

#include <pthread.h>
#include <signal.h>

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
// Interrupts a thread that runs a kernel, so that it stops if its launch is to stop.
void ask_to_stop(pthread_t thread) noexcept;
// While it lives, the calling thread can be asked: a stream's worker leaves signals to the program's threads.
class StopsWhenAsked {
 public:
  StopsWhenAsked() noexcept;
  ~StopsWhenAsked();
  StopsWhenAsked(const StopsWhenAsked&) = delete;
  StopsWhenAsked& operator=(const StopsWhenAsked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace loom::cuda_cpp
