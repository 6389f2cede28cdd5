#include "runtime/memory/memory_history.h"

#include "runtime/clock.h"

namespace loom::runtime {

void MemoryHistory::configure(const HistoryOptions& options) {
  enabled_ = options.enabled;
  recorder_ = options.enabled ? options.recorder : nullptr;
  when_ = static_cast<int>(options.enabled ? options.when : RecordContext::kNever);
  skipped_actions_ = options.skipped_actions;
  if (!options.enabled || options.clear || options.max_entries != max_entries_) {
    std::vector<TraceEntry> kept = options.enabled && !options.clear ? entries() : std::vector<TraceEntry>();
    if (kept.size() > options.max_entries) {
      kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(options.max_entries));
    }
    entries_ = std::move(kept);
    next_ = 0;
  }
  max_entries_ = options.max_entries;
}

Context MemoryHistory::gather_now(RecordContext level) const {
  if (when_.load(std::memory_order_relaxed) < static_cast<int>(level)) return nullptr;
  const ContextRecorder recorder = recorder_.load();
  return recorder == nullptr ? nullptr : recorder();
}

void MemoryHistory::record_now(TraceEntry entry) {
  if (max_entries_ == 0 || (skipped_actions_ >> static_cast<int>(entry.action) & 1) != 0) return;
  entry.time_us = clock::wall_ns() / 1000;
  if (!traces_context()) entry.context = nullptr;
  if (entries_.size() < max_entries_) {
    entries_.push_back(std::move(entry));
    return;
  }
  entries_[next_] = std::move(entry);
  next_ = (next_ + 1) % max_entries_;
}

std::vector<TraceEntry> MemoryHistory::entries() const {
  std::vector<TraceEntry> ordered(entries_.begin() + static_cast<std::ptrdiff_t>(next_), entries_.end());
  ordered.insert(ordered.end(), entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(next_));
  return ordered;
}

void MemoryHistory::set_metadata(const std::string& text) {
  metadata_ = text.empty() ? nullptr : std::make_shared<const std::string>(text);
}

}  // namespace loom::runtime
