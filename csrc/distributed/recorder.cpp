#include "distributed/recorder.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace loom::distributed {

namespace {

// Leaked: threads of streams may outlive static objects.
struct Kept {
  std::mutex mutex;
  std::atomic<size_t> capacity{0};
  std::vector<Recorded> entries;  // number n at n modulo the capacity
  size_t num_kept = 0;
};
Kept& kept() {
  static auto* const instance = new Kept;
  return *instance;
}

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::atomic<Dump> the_dump{nullptr};

}  // namespace

namespace recorder {

namespace {

// With the lock held: the entry, unless it has been overwritten.
Recorded* find(int64_t id) {
  if (id < 0 || static_cast<size_t>(id) >= kept().num_kept) return nullptr;
  Recorded& entry = kept().entries[static_cast<size_t>(id) % kept().capacity];
  return entry.id == static_cast<size_t>(id) ? &entry : nullptr;
}

void note(int64_t id, int64_t Recorded::* time) {
  if (id < 0) return;
  const std::lock_guard<std::mutex> lock(kept().mutex);
  if (Recorded* const entry = find(id)) entry->*time = now_ns();
}

}  // namespace

void set_capacity(size_t capacity) {
  const std::lock_guard<std::mutex> lock(kept().mutex);
  if (kept().capacity == capacity) return;  // each new group sets it; what is under way has its numbers
  kept().capacity = capacity;
  kept().entries.clear();
  kept().num_kept = 0;
}

size_t capacity() noexcept { return kept().capacity.load(std::memory_order_relaxed); }

int64_t keep(Recorded&& entry) {
  const std::lock_guard<std::mutex> lock(kept().mutex);
  const size_t size = kept().capacity;
  if (size == 0) return -1;
  entry.id = kept().num_kept++;
  entry.created_ns = now_ns();
  const auto id = static_cast<int64_t>(entry.id);
  if (kept().entries.size() < size) {
    kept().entries.push_back(std::move(entry));
  } else {
    kept().entries[entry.id % size] = std::move(entry);
  }
  return id;
}

void start(int64_t id) { note(id, &Recorded::started_ns); }
void complete(int64_t id) { note(id, &Recorded::completed_ns); }

std::vector<Recorded> entries() {
  const std::lock_guard<std::mutex> lock(kept().mutex);
  std::vector<Recorded> found = kept().entries;
  std::sort(found.begin(), found.end(),
            [](const auto& each, const auto& other) { return each.id < other.id; });
  return found;
}

}  // namespace recorder

void set_dump(Dump dump) noexcept { the_dump = dump; }

void dump(int global_rank) {
  if (const Dump write = the_dump.load()) write(global_rank);
}

}  // namespace loom::distributed
