#include "torch/launch/blocking_streams.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/runtime.h"

namespace loom::glue {

namespace {

struct Blocking {
  runtime::StreamRef stream;
  bool has_work = false;     // since the default stream last waited for it
  uint64_t num_awaited = 0;  // of the default stream's commands
};

// Leaked: kernels may be launched while static objects are destroyed.
struct BlockingStreams {
  std::mutex mutex;
  std::vector<Blocking> streams;
  std::vector<uint64_t> num_commands;  // of each device's default stream
};
BlockingStreams& blocking_streams() {
  static auto* const instance = new BlockingStreams;
  return *instance;
}
std::atomic<bool> has_blocking{false};

Blocking* find_blocking(BlockingStreams& known, runtime::StreamRef stream) {
  const auto found = std::find_if(known.streams.begin(), known.streams.end(), [&](const Blocking& each) {
    return each.stream.device == stream.device && each.stream.id == stream.id;
  });
  return found == known.streams.end() ? nullptr : &*found;
}

// PyTorch gives work to these streams without asking here.
bool is_idle_now(runtime::StreamRef stream) {
  runtime::Device& device = runtime::get().device(stream.device);
  return runtime::untold::query_stream(device.driver(), device.stream(stream.id));
}

// Which streams a command of a stream waits for.
std::vector<runtime::StreamRef> earlier_streams(runtime::StreamRef stream) {
  BlockingStreams& own = blocking_streams();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (static_cast<size_t>(stream.device) >= own.num_commands.size()) return {};
  uint64_t& num_commands = own.num_commands[static_cast<size_t>(stream.device)];
  if (stream.id != 0) {
    Blocking* const blocking = find_blocking(own, stream);
    if (blocking == nullptr) return {};
    blocking->has_work = true;
    const runtime::StreamRef first{stream.device, 0};
    if (std::exchange(blocking->num_awaited, num_commands) == num_commands && is_idle_now(first)) return {};
    return {first};
  }
  ++num_commands;
  std::vector<runtime::StreamRef> found;
  for (Blocking& each : own.streams) {
    if (each.stream.device != stream.device || runtime::is_captured(each.stream)) continue;
    if (std::exchange(each.has_work, false) || !is_idle_now(each.stream)) found.push_back(each.stream);
  }
  return found;
}

void let_wait(runtime::StreamRef earlier, runtime::StreamRef later) {
  const driver::Event event = runtime::create_event(earlier.device, {.timing = false});
  runtime::record_event(event, earlier);
  runtime::wait_event(later, event);
  runtime::destroy_event(event);
}

}  // namespace

void note_blocking_stream(runtime::StreamRef stream) {
  BlockingStreams& own = blocking_streams();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (find_blocking(own, stream) != nullptr) return;
  own.streams.push_back({stream});
  own.num_commands.resize(std::max(own.num_commands.size(), static_cast<size_t>(stream.device) + 1));
  has_blocking.store(true, std::memory_order_release);
}

bool is_blocking_stream(runtime::StreamRef stream) {
  BlockingStreams& own = blocking_streams();
  const std::lock_guard<std::mutex> lock(own.mutex);
  return find_blocking(own, stream) != nullptr;
}

void order_streams(runtime::StreamRef stream) {
  if (!has_blocking.load(std::memory_order_acquire)) [[likely]] {
    return;
  }
  // A graph orders its own streams.
  if (runtime::is_captured(stream)) return;
  // Waited for without the lock: a listener to commands may run code of the program's.
  for (const runtime::StreamRef earlier : earlier_streams(stream)) let_wait(earlier, stream);
}

}  // namespace loom::glue
