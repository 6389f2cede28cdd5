#include "torch/profiler/nvtx.h"

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/clock.h"
#include "torch/profiler/kineto.h"
#include "torch/profiler/profile_recorder.h"

namespace loom::glue::nvtx {

namespace {

int64_t now_us() { return (runtime::clock::wall_ns() + 500) / 1000; }

bool is_profiled() { return torch::profiler::impl::profilerEnabled(); }

// A range that has begun. It is reported to PyTorch's profiler only at its end: an open op could outlive the
// profiler's memory.
struct Range {
  std::string name;
  int64_t start_us = 0;
  unsigned long profile = 0;
  bool is_profiled = false;

  static Range begin(const std::string& name) {
    Range range{name};
    if (!(range.is_profiled = nvtx::is_profiled())) return range;
    range.start_us = now_us();
    range.profile = num_profiles();
    return range;
  }
  // In a thread of the profile that it began in; at that moment, or now.
  void end(bool is_mark = false) const {
    if (!is_profiled || profile != num_profiles() || !nvtx::is_profiled()) return;
    torch::autograd::profiler::reportBackendEventToActiveKinetoProfiler(
        start_us, is_mark ? start_us : std::max(start_us, now_us()), /*debug_handle=*/-1,
        at::RecordScope::USER_SCOPE, name, "nvtx");
  }
};

thread_local std::vector<Range> stack;

// Ranges that may end in another thread.
struct Started {
  Range range;
  // By which PyTorch's profiler finds the profile of the starting thread.
  std::optional<at::ThreadLocalState> state;
};

struct StartedRanges {
  std::mutex mutex;
  std::unordered_map<uint64_t, Started> ranges;
  uint64_t last = 0;
};

// Leaked, as what the profiler's state needs may be gone when the process ends.
StartedRanges& started() {
  static auto* ranges = new StartedRanges;
  return *ranges;
}

}  // namespace

int64_t range_push(const std::string& name) {
  stack.push_back(Range::begin(name));
  push_range(name);
  return static_cast<int64_t>(stack.size()) - 1;
}

int64_t range_pop() {
  if (stack.empty()) return -2;
  const Range range = std::move(stack.back());
  stack.pop_back();
  pop_range();
  range.end();
  return static_cast<int64_t>(stack.size());
}

uint64_t range_start(const std::string& name) {
  Started entry{Range::begin(name), std::nullopt};
  if (entry.range.is_profiled) entry.state.emplace();
  StartedRanges& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.ranges.emplace(++all.last, std::move(entry));
  return all.last;
}

bool range_end(uint64_t id) {
  StartedRanges& all = started();
  std::unordered_map<uint64_t, Started>::node_type node;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    node = all.ranges.extract(id);
  }
  if (node.empty()) return false;
  const Started& entry = node.mapped();
  if (entry.state.has_value() && entry.range.profile == num_profiles()) {
    const at::ThreadLocalStateGuard guard(*entry.state);
    entry.range.end();
  }
  return true;
}

void mark(const std::string& name) { Range::begin(name).end(/*is_mark=*/true); }

}  // namespace loom::glue::nvtx
