#include "torch/bindings/stats_dict.h"

#include <string>

namespace py = pybind11;

namespace loom::glue {

namespace {

void put(py::dict& out, const std::string& name, const runtime::Stat& stat) {
  out[py::str(name + ".current")] = stat.current;
  out[py::str(name + ".peak")] = stat.peak;
  out[py::str(name + ".allocated")] = stat.allocated;
  out[py::str(name + ".freed")] = stat.freed;
}

void put(py::dict& out, const std::string& name, const runtime::StatArray& array) {
  put(out, name + ".all", array[0]);
  put(out, name + ".small_pool", array[1]);
  put(out, name + ".large_pool", array[2]);
}

}  // namespace

py::dict stats_dict(const runtime::AllocatorStats& stats) {
  py::dict out;
  const auto put_bytes = [&](const std::string& name, const runtime::Stat& stat, bool with_totals) {
    out[py::str(name + ".current")] = stat.current;
    out[py::str(name + ".peak")] = stat.peak;
    if (!with_totals) return;
    out[py::str(name + ".total_allocated")] = stat.allocated;
    out[py::str(name + ".total_freed")] = stat.freed;
  };
  put_bytes("allocated", stats.allocated_bytes[0], true);
  put_bytes("reserved", stats.reserved_bytes[0], true);
  put_bytes("active", stats.active_bytes[0], false);
  put_bytes("cached", stats.cached_bytes, false);
  out["num_alloc_retries"] = stats.num_alloc_retries;
  out["num_ooms"] = stats.num_ooms;
  out["num_device_alloc"] = stats.num_device_alloc;
  out["num_device_free"] = stats.num_device_free;
  put(out, "allocation", stats.allocation);
  put(out, "allocated", stats.allocation);  // an older spelling of the same counts
  put(out, "segment", stats.segment);
  put(out, "active", stats.active);
  put(out, "inactive_split", stats.inactive_split);
  put(out, "allocated_bytes", stats.allocated_bytes);
  put(out, "reserved_bytes", stats.reserved_bytes);
  put(out, "active_bytes", stats.active_bytes);
  put(out, "inactive_split_bytes", stats.inactive_split_bytes);
  put(out, "requested_bytes", stats.requested_bytes);
  put(out, "oversize_allocations", stats.oversize_allocations);
  put(out, "oversize_segments", stats.oversize_segments);
  out["num_sync_all_streams"] = stats.num_sync_all_streams;
  out["max_split_size"] = stats.max_split_size;
  return out;
}

}  // namespace loom::glue
