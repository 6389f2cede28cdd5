// torch.loom.set_sync_debug_mode: who makes the host wait for the device without saying so is told.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>

namespace loom::glue {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode;
// Warns, or throws torch_loom.errors.ImplicitSynchronizationError.
void report_implicit_sync(const char* op_name);

inline bool is_sync_debugged() noexcept {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kDefault;
}

// Called where the host is about to wait.
inline void note_implicit_sync(const char* op_name) {
  if (is_sync_debugged()) [[unlikely]] {
    report_implicit_sync(op_name);
  }
}

void bind_implicit_sync(pybind11::module_& m);

}  // namespace loom::glue
