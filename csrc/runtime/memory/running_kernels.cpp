#include "runtime/memory/running_kernels.h"

#include <utility>

namespace loom::runtime {

namespace {

// Never freed: any thread may be reading it.
std::atomic<RunningKernel*> all{nullptr};

RunningKernel& take() {
  for (RunningKernel* each = all.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    bool is_taken = false;
    if (each->is_taken.compare_exchange_strong(is_taken, true, std::memory_order_acq_rel)) return *each;
  }
  auto* const made = new RunningKernel;
  made->next = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return *made;
}

}  // namespace

LOOM_FAST_ACCESS constinit thread_local RunningKernel* RunningKernel::own = nullptr;

RunningKernel& RunningKernel::make_own() {
  struct Owner {
    ~Owner() {
      if (RunningKernel* const mine = std::exchange(own, nullptr)) mine->give_back();
    }
  };
  static thread_local const Owner owner;
  (void)&owner;
  own = &take();
  own->thread.store(own, std::memory_order_relaxed);
  return *own;
}

RunningKernel& RunningKernel::take_further() {
  RunningKernel& further = take();
  further.thread.store(own, std::memory_order_relaxed);
  return further;
}

bool others_run_kernels(const CachingAllocator* allocator, int64_t stream) noexcept {
  const RunningKernel* each = all.load(std::memory_order_acquire);
  for (; each != nullptr; each = each->next) {
    if (each->allocator.load(std::memory_order_acquire) == allocator &&
        each->stream.load(std::memory_order_relaxed) == stream &&
        each->thread.load(std::memory_order_relaxed) != RunningKernel::own) {
      return true;
    }
  }
  return false;
}

}  // namespace loom::runtime
