// torch.loom.set_sync_debug_mode: reports implicit host synchronisation.
#pragma once

#include <atomic>
#include <string>

namespace loom::glue {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode;
// Warns, or throws what set_implicit_sync_error() was given.
void report_implicit_sync(const char* op_name);
// Throws torch_loom.errors.ImplicitSynchronizationError with a message.
void set_implicit_sync_error(void (*raise)(const std::string& message));

inline bool is_sync_debugged() noexcept {
  return sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kDefault;
}

// Called where the host is about to wait.
inline void note_implicit_sync(const char* op_name) {
  if (is_sync_debugged()) [[unlikely]] {
    report_implicit_sync(op_name);
  }
}

}  // namespace loom::glue
