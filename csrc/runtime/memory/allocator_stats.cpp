#include "runtime/memory/allocator_stats.h"

namespace loom::runtime {

namespace {

void put(NamedStats& out, const std::string& name, const Stat& stat) {
  out.emplace_back(name + ".current", stat.current);
  out.emplace_back(name + ".peak", stat.peak);
  out.emplace_back(name + ".allocated", stat.allocated);
  out.emplace_back(name + ".freed", stat.freed);
}

void put(NamedStats& out, const std::string& name, const StatArray& array) {
  put(out, name + ".all", array[0]);
  put(out, name + ".small_pool", array[1]);
  put(out, name + ".large_pool", array[2]);
}

void put_bytes(NamedStats& out, const std::string& name, const Stat& stat, bool with_totals) {
  out.emplace_back(name + ".current", stat.current);
  out.emplace_back(name + ".peak", stat.peak);
  if (!with_totals) return;
  out.emplace_back(name + ".total_allocated", stat.allocated);
  out.emplace_back(name + ".total_freed", stat.freed);
}

}  // namespace

NamedStats named_stats(const AllocatorStats& stats) {
  NamedStats out;
  put_bytes(out, "allocated", stats.allocated_bytes[0], true);
  put_bytes(out, "reserved", stats.reserved_bytes[0], true);
  put_bytes(out, "active", stats.active_bytes[0], false);
  put_bytes(out, "cached", stats.cached_bytes, false);
  out.emplace_back("num_alloc_retries", stats.num_alloc_retries);
  out.emplace_back("num_ooms", stats.num_ooms);
  out.emplace_back("num_device_alloc", stats.num_device_alloc);
  out.emplace_back("num_device_free", stats.num_device_free);
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
  out.emplace_back("num_sync_all_streams", stats.num_sync_all_streams);
  out.emplace_back("max_split_size", stats.max_split_size);
  return out;
}

}  // namespace loom::runtime
