#include "cuda_cpp/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace loom::cuda_cpp {

namespace {

constexpr size_t kPerSlab = 32;

}  // namespace

#if defined(__x86_64__)

// The registers that a called function keeps (System V ABI 3.2.1), then the stack.
extern "C" void loom_cuda_switch_stack(StackPointer* from, StackPointer to);
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".hidden loom_cuda_switch_stack\n"
    ".globl loom_cuda_switch_stack\n"
    ".type loom_cuda_switch_stack, @function\n"
    "loom_cuda_switch_stack:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size loom_cuda_switch_stack, . - loom_cuda_switch_stack\n");

void switch_stack(StackPointer& from, StackPointer to) { loom_cuda_switch_stack(&from, to); }

void Fiber::restart(void (*entry)()) {
  // Aligned as at the call of a function: 8 bytes below a multiple of 16.
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes - color_);
  top[-1] = nullptr;  // where `entry` would return to
  top[-2] = reinterpret_cast<void*>(entry);
  std::memset(top - 8, 0, 6 * sizeof(void*));
  pointer = top - 8;
}

#elif defined(__aarch64__)

// x19 to x30 and the lower halves of v8 to v15 (AAPCS64 6.1).
extern "C" void loom_cuda_switch_stack(StackPointer* from, StackPointer to);
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".hidden loom_cuda_switch_stack\n"
    ".globl loom_cuda_switch_stack\n"
    ".type loom_cuda_switch_stack, %function\n"
    "loom_cuda_switch_stack:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size loom_cuda_switch_stack, . - loom_cuda_switch_stack\n");

void switch_stack(StackPointer& from, StackPointer to) { loom_cuda_switch_stack(&from, to); }

void Fiber::restart(void (*entry)()) {
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes - color_);
  std::memset(top - 20, 0, 20 * sizeof(void*));
  top[-20 + 11] = reinterpret_cast<void*>(entry);  // x30, where ret goes
  pointer = top - 20;
}

#else

// Slower: each switch asks the system for the mask of signals.
void switch_stack(StackPointer& from, StackPointer to) {
  ucontext_t own;
  from = &own;
  swapcontext(&own, static_cast<ucontext_t*>(to));
}

void Fiber::restart(void (*entry)()) {
  auto* context = reinterpret_cast<ucontext_t*>(stack_ + kStackBytes - color_ - sizeof(ucontext_t));
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStackBytes - color_ - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  pointer = context;
}

#endif

FiberPool::~FiberPool() {
  for (char* slab : slabs_) munmap(slab, kPerSlab * (Fiber::kStackBytes + Fiber::kGuardBytes));
}

Fiber* FiberPool::take() {
  if (idle_.empty()) grow();
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void FiberPool::take_back(const std::vector<Fiber*>& fibers) {
  for (Fiber* const fiber : fibers) {
    if (std::find(idle_.begin(), idle_.end(), fiber) == idle_.end()) idle_.push_back(fiber);
  }
}

void FiberPool::grow() {
  constexpr size_t each = Fiber::kStackBytes + Fiber::kGuardBytes;
  void* const memory = mmap(nullptr, kPerSlab * each, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const slab = static_cast<char*>(memory);
  slabs_.push_back(slab);
  for (size_t i = 0; i < kPerSlab; ++i) {
    char* const guard = slab + i * each;
    mprotect(guard, Fiber::kGuardBytes, PROT_NONE);
    // Multiples of 64, in the first page from the top.
    const size_t color = (all_.size() * 320) % 3840 / 64 * 64;
    all_.push_back(std::make_unique<Fiber>(guard + Fiber::kGuardBytes, color));
    idle_.push_back(all_.back().get());
  }
}

}  // namespace loom::cuda_cpp
