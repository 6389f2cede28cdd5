#include "runtime/blocking.h"

#include <atomic>

namespace loom::runtime {

namespace {

std::atomic<BlockingCall> current_blocking_call{nullptr};

}  // namespace

void set_blocking_call(BlockingCall call) noexcept { current_blocking_call = call; }

BlockingCall blocking_call() noexcept { return current_blocking_call; }

}  // namespace loom::runtime
