#include "torch/dispatch/implicit_sync.h"

#include <c10/util/Exception.h>

#include "torch/core/device.h"
#include "torch/core/errors.h"
#include "torch/core/python_line.h"
#include "torch/dispatch/device_assert.h"

namespace loom::glue {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kDefault};

namespace {

std::atomic<void (*)(int)> tell{nullptr};

void update_watch() {
  is_sync_watched =
      tell.load() != nullptr || sync_debug_mode.load() != SyncDebugMode::kDefault || has_asserted.load();
}

}  // namespace

std::atomic<bool> is_sync_watched{false};

void set_sync_debug_mode(SyncDebugMode mode) {
  sync_debug_mode = mode;
  update_watch();
}

void set_sync_listener(void (*listener)(int device)) {
  tell = listener;
  update_watch();
}

void watch_syncs_for_asserts() { update_watch(); }

void report_implicit_sync(const char* op_name, int device) {
  check_device_assert();
  if (const auto listener = tell.load(); listener != nullptr && device != kOnTape) listener(device);
  if (sync_debug_mode.load(std::memory_order_relaxed) == SyncDebugMode::kDefault) return;
  const std::string line(python_line());
  const std::string message = "called a synchronizing " + device_name_upper() + " operation: " + op_name +
                              " makes the host wait for the device" + (line.empty() ? "" : " (" + line + ")");
  if (sync_debug_mode.load(std::memory_order_relaxed) == SyncDebugMode::kError) raise_implicit_sync(message);
  TORCH_WARN(message);
}

}  // namespace loom::glue
