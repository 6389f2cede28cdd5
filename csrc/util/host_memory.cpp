#include "util/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "util/clock.h"

namespace loom::host_memory {

namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
// How old a reading may be: while there is plenty, a host cannot run short in the longer time.
constexpr int64_t kMaxAgeNs = 5'000'000, kMaxAgeOfPlentyNs = 100'000'000;
constexpr int64_t kPlenty = int64_t{4} << 30;
// Kept free for the program itself: a twentieth of the host, and no more than this.
constexpr int64_t kMaxReserve = int64_t{512} << 20;
constexpr char kSetting[] = "TORCH_LOOM_HOST_MEMORY";
constexpr size_t kPagesAtOnce = size_t{1} << 16;
// A thread costs as much as some twenty pages.
constexpr size_t kBytesAThread = size_t{1} << 20, kMostThreads = 4;

struct Reading {
  int64_t left_bytes = kNone, total_bytes = kNone;
  const char* limited_by = "its memory";
};

std::atomic<int64_t> limit_bytes{0};
std::atomic<int64_t> read_at_ns{std::numeric_limits<int64_t>::min() / 2};
std::atomic<int64_t> last_room{kNone};

int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = kNone;
  return file >> value ? value : kNone;  // "max" is no number
}

// The value of a line "NAME VALUE" or "NAME: VALUE kB".
int64_t entry_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if ((word == name || word == name + ":") && file >> value) return value;
    file.ignore(kNone, '\n');
  }
  return kNone;
}

void lower(Reading& reading, int64_t total, int64_t left, const char* by) {
  if (left >= reading.left_bytes) return;
  reading = {std::max<int64_t>(left, 0), total, by};
}

// One folder of a cgroup: its limit, and what is used without cached files that can be dropped.
void read_cgroup(Reading& reading, const std::string& folder, const char* limit, const char* used,
                 const char* cached) {
  const int64_t total = number_in(folder + limit);
  const int64_t current = number_in(folder + used);
  if (total == kNone || current == kNone || total > (kNone >> 2)) return;
  const int64_t droppable = entry_of(folder + "/memory.stat", cached);
  lower(reading, total, total - current + (droppable == kNone ? 0 : droppable), "the limit of its cgroup");
}

void read_cgroups(Reading& reading) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool is_second_version = controllers.empty();
    if (!is_second_version && controllers != "memory") continue;
    // Each folder above limits as well; in a container the path may be one of the host's, which is not there.
    for (;; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      if (is_second_version) {
        read_cgroup(reading, "/sys/fs/cgroup" + path, "/memory.max", "/memory.current", "inactive_file");
      } else {
        read_cgroup(reading, "/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes",
                    "/memory.usage_in_bytes", "total_inactive_file");
      }
      if (path.rfind('/') == std::string::npos) break;
    }
  }
}

Reading read() {
  Reading reading;
  const int64_t total = entry_of("/proc/meminfo", "MemTotal");
  const int64_t available = entry_of("/proc/meminfo", "MemAvailable");
  if (total != kNone && available != kNone) lower(reading, total << 10, available << 10, "its memory");
  read_cgroups(reading);
  if (const int64_t limit = limit_bytes.load(); limit > 0) {
    std::ifstream file("/proc/self/statm");
    int64_t size = 0, resident = 0;
    if (file >> size >> resident) {
      lower(reading, limit, limit - resident * sysconf(_SC_PAGESIZE), kSetting);
    }
  }
  return reading;
}

int64_t room_of(const Reading& reading) {
  if (reading.left_bytes == kNone) return kNone;  // a host that does not say
  // What the program's own limit is, it may use.
  const int64_t reserve =
      limit_bytes.load() == reading.total_bytes ? 0 : std::min(kMaxReserve, reading.total_bytes / 20);
  return reading.left_bytes - reserve;
}

int64_t room(bool is_new) {
  const int64_t now = clock::host_ns();
  const bool is_plenty = last_room.load(std::memory_order_relaxed) > kPlenty;
  const int64_t max_age = is_plenty ? kMaxAgeOfPlentyNs : kMaxAgeNs;
  if (is_new || now - read_at_ns.load(std::memory_order_relaxed) > max_age) {
    last_room.store(room_of(read()), std::memory_order_relaxed);
    read_at_ns.store(now, std::memory_order_relaxed);
  }
  return last_room.load(std::memory_order_relaxed);
}

std::string gib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
  return text;
}

}  // namespace

void set_limit(int64_t bytes) noexcept {
  limit_bytes.store(bytes);
  read_at_ns.store(std::numeric_limits<int64_t>::min() / 2);
}

bool has_room(size_t bytes) noexcept {
  const auto wanted = static_cast<int64_t>(std::min<size_t>(bytes, kNone));
  try {
    return wanted <= room(false) || wanted <= room(true);
  } catch (const std::exception&) {
    return true;  // what cannot be read limits nothing
  }
}

bool can_touch(const void* address, size_t bytes) noexcept {
  if (has_room(bytes)) return true;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto at = reinterpret_cast<uintptr_t>(address) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + bytes;
  size_t untouched = 0;
  try {
    std::vector<unsigned char> is_there(kPagesAtOnce);
    while (at < end) {
      const size_t pages = std::min(kPagesAtOnce, (end - at + page - 1) / page);
      if (mincore(reinterpret_cast<void*>(at), pages * page, is_there.data()) != 0) return true;
      untouched += static_cast<size_t>(std::count_if(is_there.begin(),
                                                     is_there.begin() + static_cast<std::ptrdiff_t>(pages),
                                                     [](unsigned char flags) { return (flags & 1) == 0; }));
      at += pages * page;
    }
  } catch (const std::exception&) {
    return true;
  }
  return untouched == 0 || has_room(untouched * page);
}

void touch(void* address, size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  // Kernels before Linux 5.14 know no such advice.
  static std::atomic<bool> is_refused{false};
  if (bytes < kLargeBytes || is_refused.load(std::memory_order_relaxed)) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(address) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + bytes) / page * page;
  unsigned char is_there = 1;
  if (begin >= end || mincore(reinterpret_cast<void*>(end - page), page, &is_there) != 0) return;
  if ((is_there & 1) != 0) return;
  const auto populate = [](uintptr_t from, uintptr_t to) {
    const int result = madvise(reinterpret_cast<void*>(from), to - from, MADV_POPULATE_WRITE);
    if (result != 0 && errno == EINVAL) is_refused.store(true, std::memory_order_relaxed);
  };
  static const size_t num_cores = std::max(1U, std::thread::hardware_concurrency());
  const size_t num_parts =
      std::clamp((end - begin) / kBytesAThread, size_t{1}, std::min(num_cores, kMostThreads));
  const size_t part = (end - begin) / page / num_parts * page;
  std::array<std::thread, kMostThreads> threads;
  uintptr_t from = begin;
  try {
    for (size_t i = 0; i + 1 < num_parts; ++i) {
      threads[i] = std::thread(populate, from, from + part);
      from += part;
    }
  } catch (const std::exception&) {  // no thread, or no memory for one: this one does the rest
  }
  populate(from, end);
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
#endif
}

std::string describe() {
  const Reading reading = read();
  std::string limit = reading.limited_by;
  if (limit != kSetting) limit.append("; ").append(kSetting).append(" sets a limit");
  return "the host, whose memory holds what the devices hold, has " + gib(reading.total_bytes) +
         " of which " + gib(reading.left_bytes) + " are left (limited by " + limit + ")";
}

}  // namespace loom::host_memory
