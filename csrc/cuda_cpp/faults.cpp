#include "cuda_cpp/faults.h"

#include <ucontext.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cuda_cpp/division.h"
#include "cuda_cpp/runner.h"

namespace loom::cuda_cpp {

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

// Whose default is to be ignored, so that one which comes late does no harm.
constexpr int kStopSignal = SIGURG;

struct sigaction before_fault, before_division, before_stop;

#if defined(__x86_64__)

void go_on_at(ucontext_t& context, void (*function)(), uintptr_t stack) {
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
  context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(stack - 8);  // as at the call of a function
}
uintptr_t code_of(const ucontext_t& context) {
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
}
uintptr_t stack_of(const ucontext_t& context) {
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
}

#elif defined(__aarch64__)

void go_on_at(ucontext_t& context, void (*function)(), uintptr_t stack) {
  context.uc_mcontext.pc = reinterpret_cast<uintptr_t>(function);
  context.uc_mcontext.sp = stack;
}
uintptr_t code_of(const ucontext_t& context) { return context.uc_mcontext.pc; }
uintptr_t stack_of(const ucontext_t& context) { return context.uc_mcontext.sp; }

#endif

#if defined(__x86_64__) || defined(__aarch64__)

void hand_on(const struct sigaction& before, int number, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    std::signal(number, SIG_DFL);  // the instruction is tried again
  }
}

void on_division(int number, siginfo_t* info, void* context) {
  const bool is_division = info->si_code == FPE_INTDIV && Runner::active() != nullptr;
  if (is_division && finish_division(*static_cast<ucontext_t*>(context))) return;
  hand_on(before_division, number, info, context);
}

void on_fault(int number, siginfo_t* info, void* context) {
  Runner* const runner = Runner::active();
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_sent = info->si_code <= 0;  // by a program
  const uintptr_t stack = runner == nullptr || is_sent ? 0 : runner->begin_fault(address);
  if (stack == 0) return hand_on(before_fault, number, info, context);
  // What was on the stack is of no use any more.
  go_on_at(*static_cast<ucontext_t*>(context), [] { Runner::active()->fail_by_fault(); }, stack);
}

void on_stop(int number, siginfo_t* info, void* context) {
  Runner* const runner = Runner::active();
  auto& known = *static_cast<ucontext_t*>(context);
  const uintptr_t stack = runner == nullptr ? 0 : runner->begin_stop(code_of(known), stack_of(known));
  if (stack != 0) {
    go_on_at(known, [] { Runner::active()->fail_by_time(); }, stack);
  } else if ((before_stop.sa_flags & SA_SIGINFO) != 0) {
    before_stop.sa_sigaction(number, info, context);
  } else if (before_stop.sa_handler != SIG_DFL && before_stop.sa_handler != SIG_IGN) {
    before_stop.sa_handler(number);
  }
}

void install(int number, void (*handler)(int, siginfo_t*, void*), struct sigaction& before) {
  struct sigaction own = {};
  sigemptyset(&own.sa_mask);
  own.sa_flags = SA_SIGINFO | SA_ONSTACK | (number == kStopSignal ? SA_RESTART : 0);
  own.sa_sigaction = handler;
  sigaction(number, &own, &before);
}

#endif

}  // namespace

SignalStack::SignalStack() {
  stack_t known = {};
  if (sigaltstack(nullptr, &known) != 0 || (known.ss_flags & SS_DISABLE) == 0) return;
  memory_ = std::make_unique<char[]>(kStackBytes);
  stack_t own = {};
  own.ss_sp = memory_.get();
  own.ss_size = kStackBytes;
  sigaltstack(&own, nullptr);
}

SignalStack::~SignalStack() {
  stack_t known = {};
  if (memory_ == nullptr || sigaltstack(nullptr, &known) != 0 || known.ss_sp != memory_.get()) return;
  known = {};
  known.ss_flags = SS_DISABLE;
  sigaltstack(&known, nullptr);
}

void handle_faults() {
#if defined(__x86_64__) || defined(__aarch64__)
  static std::once_flag once;
  std::call_once(once, [] {
    install(SIGFPE, &on_division, before_division);
    install(SIGSEGV, &on_fault, before_fault);
    install(kStopSignal, &on_stop, before_stop);
  });
#endif
}

void ask_to_stop(pthread_t thread) noexcept { pthread_kill(thread, kStopSignal); }

StopsWhenAsked::StopsWhenAsked() noexcept {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, kStopSignal);
  pthread_sigmask(SIG_UNBLOCK, &stop, &before_);
}
StopsWhenAsked::~StopsWhenAsked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace loom::cuda_cpp
