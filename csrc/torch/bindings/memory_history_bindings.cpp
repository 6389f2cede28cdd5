// History and snapshots in PyTorch's own format: its memory viewer and torch.cuda._memory_viz read them.
#include <c10/core/AllocatorConfig.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"

namespace py = pybind11;

// Declared in torch/csrc/profiler/python/combined_traceback.h, which includes a header that torch's wheels
// lack.
namespace torch {
TORCH_PYTHON_API std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
TORCH_PYTHON_API void installCapturedTracebackPython();
}  // namespace torch

namespace loom::glue {

namespace {

using torch::CapturedTraceback;

// In the order of TraceAction.
constexpr std::array kActions{"alloc",         "free_requested", "free_completed",
                              "segment_alloc", "segment_free",   "segment_map",
                              "segment_unmap", "snapshot",       "oom"};

runtime::Context gather_python() { return CapturedTraceback::gather(true, true, false); }
runtime::Context gather_all() { return CapturedTraceback::gather(true, true, true); }

// Context is opaque to the runtime; only the recorders above make any.
CapturedTraceback* traceback_of(const runtime::Context& context) {
  return static_cast<CapturedTraceback*>(context.get());
}

// Fills in "frames" for all dictionaries at once: equal frames are looked up once.
class Frames {
 public:
  void put(const py::dict& into, const runtime::Context& context) {
    if (CapturedTraceback* traceback = traceback_of(context)) {
      waiting_.emplace_back(into, traceback);
    } else {
      into["frames"] = py::list();
    }
  }
  void fill() {
    std::vector<CapturedTraceback*> unique;
    std::unordered_map<CapturedTraceback*, size_t> place;
    for (const auto& [into, traceback] : waiting_) {
      if (place.emplace(traceback, unique.size()).second) unique.push_back(traceback);
    }
    const std::vector<py::object> frames = torch::py_symbolize(unique);
    for (const auto& [into, traceback] : waiting_) into["frames"] = frames[place.at(traceback)];
  }

 private:
  std::vector<std::pair<py::dict, CapturedTraceback*>> waiting_;
};

py::dict block_dict(const runtime::BlockInfo& block, Frames& frames) {
  py::dict out;
  out["address"] = block.address;
  out["size"] = block.size;
  out["requested_size"] = block.requested;
  out["state"] = block.allocated ? "active_allocated" : block.active ? "active_awaiting_free" : "inactive";
  frames.put(out, block.context);
  return out;
}

py::dict segment_dict(int device, const runtime::SegmentInfo& segment, Frames& frames) {
  py::dict out;
  out["device"] = device;
  out["address"] = segment.address;
  out["total_size"] = segment.total;
  out["allocated_size"] = segment.allocated;
  out["active_size"] = segment.active;
  out["requested_size"] = segment.requested;
  out["stream"] = segment.stream;
  out["segment_type"] = segment.is_large ? "large" : "small";
  out["segment_pool_id"] = segment.pool;
  out["is_expandable"] = segment.is_expandable;
  frames.put(out, segment.context);
  py::list blocks;
  for (const runtime::BlockInfo& block : segment.blocks) blocks.append(block_dict(block, frames));
  out["blocks"] = blocks;
  return out;
}

py::dict trace_dict(const runtime::TraceEntry& entry, Frames& frames) {
  py::dict out;
  if (entry.context != nullptr) frames.put(out, entry.context);
  out["action"] = kActions[static_cast<size_t>(entry.action)];
  out[entry.action == runtime::TraceAction::kOutOfMemory ? "device_free" : "addr"] = entry.address;
  out["size"] = entry.bytes;
  out["stream"] = entry.stream;
  out["time_us"] = entry.time_us;
  out["pool_id"] = entry.pool;
  out["compile_context"] = "";
  out["user_metadata"] = entry.metadata ? *entry.metadata : std::string();
  return out;
}

py::dict settings_dict() {
  using c10::CachingAllocator::AcceleratorAllocatorConfig;
  py::dict out;
  const size_t max_split = AcceleratorAllocatorConfig::max_split_size();
  out["PYTORCH_ALLOC_CONF"] = AcceleratorAllocatorConfig::last_allocator_settings();
  out["max_split_size"] = max_split == SIZE_MAX ? int64_t{-1} : static_cast<int64_t>(max_split);
  out["garbage_collection_threshold"] = AcceleratorAllocatorConfig::garbage_collection_threshold();
  out["expandable_segments"] = AcceleratorAllocatorConfig::use_expandable_segments();
  py::dict divisions;
  size_t mebibytes = 1;
  for (const size_t each : AcceleratorAllocatorConfig::roundup_power2_divisions()) {
    divisions[py::str(std::to_string(mebibytes))] = each;
    mebibytes *= 2;
  }
  out["roundup_power2_divisions"] = divisions;
  return out;
}

// `pool` {0, 0}: all pools.
py::dict memory_snapshot(runtime::PoolId pool, bool with_trace) {
  py::list segments, traces;
  Frames frames;
  // Kept until the frames are filled in: they own the tracebacks.
  std::vector<runtime::MemorySnapshot> snapshots;
  for (int device = 0; device < devices().device_count(); ++device) {
    snapshots.push_back(devices().device(device).allocator->snapshot(pool, with_trace));
    for (const runtime::SegmentInfo& segment : snapshots.back().segments) {
      segments.append(segment_dict(device, segment, frames));
    }
    py::list trace;
    for (const runtime::TraceEntry& entry : snapshots.back().trace) trace.append(trace_dict(entry, frames));
    traces.append(trace);
  }
  frames.fill();
  py::dict out;
  out["segments"] = segments;
  out["device_traces"] = traces;
  out["allocator_settings"] = settings_dict();
  out["external_annotations"] = py::list();
  return out;
}

// The texts were checked by torch_loom/device/memory/history.py.
void record_memory_history(const std::optional<std::string>& enabled,
                           const std::optional<std::string>& context, const std::string& stacks,
                           size_t max_entries, bool clear_history,
                           const std::vector<std::string>& skip_actions) {
  runtime::HistoryOptions options;
  options.enabled = enabled.has_value();
  options.recorder = stacks == "all" ? &gather_all : &gather_python;
  options.when = !context              ? runtime::RecordContext::kNever
                 : *context == "state" ? runtime::RecordContext::kState
                 : *context == "alloc" ? runtime::RecordContext::kAlloc
                                       : runtime::RecordContext::kAll;
  options.max_entries = max_entries;
  options.clear = clear_history;
  for (const std::string& action : skip_actions) {
    const auto found = std::find(kActions.begin(), kActions.end(), action);
    options.skipped_actions |= 1U << static_cast<unsigned>(found - kActions.begin());
  }
  torch::installCapturedTracebackPython();
  for (int device = 0; device < devices().device_count(); ++device) {
    devices().device(device).allocator->record_history(options);
  }
}

py::object allocation_traceback(uintptr_t address) {
  void* const pointer = reinterpret_cast<void*>(address);
  const int device = devices().device_of(pointer);
  if (device < 0) return py::none();
  const runtime::Context context =
      devices().device(device).allocator->allocation_context(devices().device_address(pointer));
  if (context == nullptr) return py::none();
  std::vector<CapturedTraceback*> traced{traceback_of(context)};
  return torch::py_symbolize(traced).front();
}

}  // namespace

void bind_memory_history(py::module_& m) {
  m.def("record_memory_history", guarded(record_memory_history));
  m.def("memory_snapshot", guarded(memory_snapshot));
  m.def("allocation_traceback", guarded(allocation_traceback));
  m.def("set_memory_metadata", guarded([](const std::string& text) {
          for (int device = 0; device < devices().device_count(); ++device) {
            devices().device(device).allocator->set_history_metadata(text);
          }
        }));
  m.def("memory_metadata", guarded([] { return devices().device(0).allocator->history_metadata(); }));
  m.attr("memory_trace_actions") = py::cast(std::vector<std::string>(kActions.begin(), kActions.end()));
}

}  // namespace loom::glue
