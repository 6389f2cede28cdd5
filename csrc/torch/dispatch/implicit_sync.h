// torch.loom.set_sync_debug_mode and _gpu_trace: report implicit host synchronisation.
#pragma once

#include <atomic>

namespace loom::glue {

enum class SyncDebugMode : int { kDefault, kWarn, kError };

extern std::atomic<SyncDebugMode> sync_debug_mode;
// Whether such waits are watched: there is a debug mode, a listener, or an assert to raise.
extern std::atomic<bool> is_sync_watched;
void set_sync_debug_mode(SyncDebugMode mode);
// Called with the device whose current stream the host waits for. It stays.
void set_sync_listener(void (*listener)(int device));
// A device has asserted: from now on implicit synchronisation raises that (device_assert.h).
void watch_syncs_for_asserts();
// Tells the listener; warns, or raises ImplicitSynchronizationError.
void report_implicit_sync(const char* op_name, int device);

// In the place of a device: the wait is a command of its own, which the tape reports to the listener.
constexpr int kOnTape = -1;

// Called where the host is about to wait for the current stream of a device.
inline void note_implicit_sync(const char* op_name, int device) {
  if (is_sync_watched.load(std::memory_order_relaxed)) [[unlikely]] {
    report_implicit_sync(op_name, device);
  }
}

}  // namespace loom::glue
