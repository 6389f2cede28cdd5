#include "telemetry/activity_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "telemetry/activity_page.h"
#include "util/clock.h"

namespace loom::telemetry {

namespace {

constexpr uint64_t kMaxMemoryBytes = uint64_t{16} << 40;  // as in torch_loom/config/parsers.py
constexpr uint64_t kNumBuckets = driver::activity::kNumBuckets;
constexpr size_t kStreamWords = sizeof(driver::StreamActivity) / sizeof(uint64_t);
static_assert(kStreamWords == 8 + 2 * kNumBuckets);
constexpr size_t kMaxPageBytes = kStreamsOffset + kMaxDevices * kMaxStreams * sizeof(driver::StreamActivity);
constexpr const char* kOpenFiles = "/proc/self/fd/";

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

bool begins_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

std::vector<std::string> names_with(const std::string& prefix) {
  std::vector<std::string> names;
  const Folder folder(opendir(kFolder));
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    if (begins_with(entry->d_name, prefix)) names.emplace_back(entry->d_name);
  }
  return names;
}

// The process that holds the lock of a file; 0: none; nullopt: unknown.
std::optional<int> holder_of(int file) {
  struct flock asked = {};
  asked.l_type = F_WRLCK;
  asked.l_whence = SEEK_SET;
  if (fcntl(file, F_GETLK, &asked) != 0) return std::nullopt;
  if (asked.l_type == F_UNLCK) return 0;
  if (asked.l_pid <= 0) return std::nullopt;  // of a process that is not seen from here
  return asked.l_pid;
}

void append_page(int file, int pid, std::vector<Process>& found) {
  struct stat status;
  if (fstat(file, &status) != 0 || static_cast<size_t>(status.st_size) > kMaxPageBytes) return;
  std::string page(static_cast<size_t>(status.st_size), '\0');
  if (pread(file, page.data(), page.size(), 0) != static_cast<ssize_t>(page.size())) return;
  for (Process& process : parse(page, pid)) found.push_back(std::move(process));
}

// A process has its own file open as long as it lives, and its forked children inherit it: then the lock is
// the parent's. Returns which files these are; nothing if that is not known.
std::optional<std::vector<ino_t>> append_open_files(const std::string& mine, const std::string& of_machine,
                                                    std::vector<Process>& found) {
  const Folder folder(opendir(kOpenFiles));
  if (folder == nullptr) return std::nullopt;
  std::vector<ino_t> seen;
  while (const dirent* entry = readdir(folder.get())) {
    char text[512] = {};
    if (readlink((std::string(kOpenFiles) + entry->d_name).c_str(), text, sizeof text - 1) <= 0) continue;
    const std::string_view target = text;
    if (!begins_with(target, kFolder + mine) && !begins_with(target, kUnnamedFile)) continue;
    const int file = std::atoi(entry->d_name);
    struct stat status;
    const std::optional<int> holder = holder_of(file);
    if (!holder || fstat(file, &status) != 0) continue;
    seen.push_back(status.st_ino);
    if (*holder == 0) append_page(file, getpid(), found);
    if (*holder != 0 && begins_with(target, kFolder + of_machine)) append_page(file, *holder, found);
  }
  return seen;
}

void append_file(const std::string& path, std::vector<Process>& found) {
  const int file = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  const std::optional<int> holder = holder_of(file);
  if (holder == 0) {
    // Lock it first: its creator may be about to, and then makes another.
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (fcntl(file, F_SETLK, &lock) == 0) unlink(path.c_str());
  } else if (holder) {
    append_page(file, *holder, found);
  }
  close(file);
}

// Sets it where a name is given; returns it.
std::string latest_machine(const std::string& given) {
  static std::mutex mutex;
  static std::string latest;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!given.empty()) latest = given;
  return latest;
}

struct Idle {
  double kernels = 1, anything = 1;
};

// Multiplies the idle shares of each bucket, from the first on, by those of a stream.
void fold(const Stream& stream, int shift, uint64_t first, uint64_t now, std::vector<Idle>& idle) {
  const uint64_t began = stream[0];
  const bool runs_copy = stream[1] != 0;
  for (size_t place = 0; place < idle.size(); ++place) {
    const uint64_t number = first + place, start = number << shift;
    const uint64_t end = std::min((number + 1) << shift, now);
    if (end <= start) continue;
    double busy[2] = {};
    for (size_t kind = 0; kind < 2; ++kind) {
      const uint64_t word = stream[8 + kind * kNumBuckets + number % kNumBuckets];
      if (word >> 32 == (number & 0xFFFFFFFF)) busy[kind] = static_cast<double>(word & 0xFFFFFFFF);
    }
    if (began != 0 && began < end) {  // what runs still
      busy[runs_copy ? 1 : 0] += static_cast<double>(end - std::max(began, start));
    }
    const auto length = static_cast<double>(end - start);
    idle[place].kernels *= 1.0 - std::min(busy[0] / length, 1.0);
    idle[place].anything *= 1.0 - std::min((busy[0] + busy[1]) / length, 1.0);
  }
}

}  // namespace

std::vector<Process> parse(std::string_view page, int pid) {
  if (page.size() < kStreamsOffset) return {};
  PageHeader header;
  std::memcpy(static_cast<void*>(&header), page.data(), sizeof header);
  if (std::memcmp(header.magic, kPageMagic, sizeof kPageMagic) != 0 || header.version != kPageVersion)
    return {};
  if (header.process != static_cast<uint32_t>(pid) || header.num_buckets != kNumBuckets) return {};
  if (header.num_devices > kMaxDevices || header.num_streams > kMaxStreams) return {};
  if (header.bucket_shift < 8 || header.bucket_shift > 31) return {};
  const size_t stream_bytes = kStreamWords * sizeof(uint64_t);
  if (page.size() < kStreamsOffset + header.num_devices * header.num_streams * stream_bytes) return {};
  std::vector<Process> found;
  for (size_t index = 0; index < header.num_devices; ++index) {
    const DeviceEntry& entry = header.devices[index];
    Process process;
    process.pid = pid;
    process.physical = static_cast<int>(entry.physical);
    process.memory_bytes = entry.memory_bytes.load(std::memory_order_relaxed);
    process.capacity_bytes = entry.capacity_bytes.load(std::memory_order_relaxed);
    if (std::max(process.memory_bytes, process.capacity_bytes) > kMaxMemoryBytes) continue;
    process.chip.assign(entry.chip, strnlen(entry.chip, sizeof entry.chip));
    process.bucket_shift = static_cast<int>(header.bucket_shift);
    const char* const first = page.data() + kStreamsOffset + index * header.num_streams * stream_bytes;
    for (size_t number = 0; number < header.num_streams; ++number) {
      Stream stream(kStreamWords);
      std::memcpy(stream.data(), first + number * stream_bytes, stream_bytes);
      // The third word is the size of the buckets, which each has.
      const bool has_run = stream[0] != 0 || std::any_of(stream.begin() + 8, stream.end(),
                                                         [](uint64_t word) { return word != 0; });
      if (has_run) process.streams.push_back(std::move(stream));
    }
    found.push_back(std::move(process));
  }
  return found;
}

void remove_left_over() {
  const std::string machine = latest_machine({});
  if (!machine.empty()) processes(machine);
}

std::vector<Process> processes(const std::string& machine) {
  std::vector<Process> found;
  latest_machine(machine);
  const std::string mine = kFilePrefix + std::to_string(geteuid()) + "-", of_machine = mine + machine + "-";
  // First: a file that another thread of this process publishes meanwhile is then not among them, or is open.
  const std::vector<std::string> names = names_with(of_machine);
  const std::optional<std::vector<ino_t>> open_files = append_open_files(mine, of_machine, found);
  if (!open_files) return found;  // this process's own is not to be taken for left over
  for (const std::string& name : names) {
    const std::string path = kFolder + name;
    struct stat status;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) continue;
    if (std::find(open_files->begin(), open_files->end(), status.st_ino) != open_files->end()) continue;
    append_file(path, found);
  }
  return found;
}

std::vector<Process> users_of(const std::string& machine, int physical) {
  std::vector<Process> found = processes(machine);
  std::erase_if(found, [&](const Process& process) { return process.physical != physical; });
  return found;
}

Busy busy_share(const std::vector<const Stream*>& streams, int shift, uint64_t now, uint64_t period) {
  const uint64_t begin = now > period ? now - period : 0, first = begin >> shift;
  std::vector<Idle> idle((now >> shift) - first + 1);
  for (const Stream* stream : streams) fold(*stream, shift, first, now, idle);
  Busy busy;
  for (size_t place = 0; place < idle.size(); ++place) {
    const uint64_t number = first + place;
    const uint64_t from = std::max(number << shift, begin), to = std::min((number + 1) << shift, now);
    const double length = to > from ? static_cast<double>(to - from) : 0.0;
    busy.kernels += length * (1.0 - idle[place].kernels);
    busy.kernels_or_copies += length * (1.0 - idle[place].anything);
  }
  const auto whole = static_cast<double>(period);
  return {std::min(busy.kernels / whole, 1.0), std::min(busy.kernels_or_copies / whole, 1.0)};
}

Busy busy_share(const std::vector<Process>& found, uint64_t now) {
  const auto period = static_cast<uint64_t>(clock::ticks_per_second());
  // Processes that measured the counter a little differently may have buckets of another size.
  std::map<int, std::vector<const Stream*>> by_shift;
  for (const Process& process : found) {
    for (const Stream& stream : process.streams) by_shift[process.bucket_shift].push_back(&stream);
  }
  Idle idle;
  for (const auto& [shift, streams] : by_shift) {
    const Busy busy = busy_share(streams, shift, now, period);
    idle.kernels *= 1.0 - busy.kernels;
    idle.anything *= 1.0 - busy.kernels_or_copies;
  }
  return {1.0 - idle.kernels, 1.0 - idle.anything};
}

}  // namespace loom::telemetry
