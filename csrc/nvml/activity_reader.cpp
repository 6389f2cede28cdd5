#include "nvml/activity_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "driver/activity.h"
#include "util/clock.h"

namespace loom::nvml {

namespace {

// The layout of csrc/runtime/ipc/activity_board.h.
constexpr char kMagic[8] = "LOOMACT";
constexpr uint32_t kVersion = 2;
constexpr size_t kStreamsOffset = 4096, kMaxDevices = 64, kMaxStreams = 256;
constexpr uint64_t kMaxMemoryBytes = uint64_t{16} << 40;
constexpr uint64_t kNumBuckets = driver::activity::kNumBuckets;
// Of a stream: when what runs now began, whether that is a copy, six unused; kernels' buckets, copies'.
constexpr size_t kStreamWords = 8 + 2 * kNumBuckets;
static_assert(kStreamWords * sizeof(uint64_t) == sizeof(driver::StreamActivity));
constexpr const char* kFolder = "/dev/shm/";
constexpr const char* kUnnamed = "/memfd:torch-loom-activity";

struct Header {
  char magic[8];
  uint32_t version, process, num_devices, num_streams, num_buckets, bucket_shift;
  uint32_t unused[8];
  struct {
    uint32_t physical, unused;
    uint64_t memory_bytes, capacity_bytes;
    char chip[32];
  } devices[kMaxDevices];
};
static_assert(sizeof(Header) <= kStreamsOffset);

using Stream = std::vector<uint64_t>;

struct Seen {
  int pid = 0;
  uint64_t memory_bytes = 0;
  int shift = 0;
  std::vector<Stream> streams;
};

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

template <class Visit>
void for_each_name(const char* path, Visit visit) {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir(path));
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) visit(entry->d_name);
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// Who holds the lock of a file; 0: nobody, or a process that cannot be seen from here.
int holder_of(int file) {
  struct flock asked = {};
  asked.l_type = F_WRLCK;
  asked.l_whence = SEEK_SET;
  return fcntl(file, F_GETLK, &asked) == 0 && asked.l_type != F_UNLCK ? asked.l_pid : 0;
}

// What a process has published of a device; nothing if it is not what it should be.
void read_device(int file, int pid, int physical, std::vector<Seen>& found) {
  Header header;
  if (pread(file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) return;
  const bool is_ours = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.version == kVersion;
  if (!is_ours || static_cast<int>(header.process) != pid || header.num_buckets != kNumBuckets) return;
  if (header.num_devices > kMaxDevices || header.num_streams > kMaxStreams) return;
  if (header.bucket_shift < 8 || header.bucket_shift > 31) return;
  for (size_t index = 0; index < header.num_devices; ++index) {
    const auto& entry = header.devices[index];
    if (static_cast<int>(entry.physical) != physical) continue;
    if (std::max(entry.memory_bytes, entry.capacity_bytes) > kMaxMemoryBytes) return;
    Seen seen{pid, entry.memory_bytes, static_cast<int>(header.bucket_shift), {}};
    Stream words(header.num_streams * kStreamWords);
    const size_t size = words.size() * sizeof(uint64_t);
    const auto place = static_cast<off_t>(kStreamsOffset + index * size);
    if (pread(file, words.data(), size, place) != static_cast<ssize_t>(size)) return;
    for (size_t first = 0; first < words.size(); first += kStreamWords) {
      seen.streams.emplace_back(words.begin() + static_cast<ptrdiff_t>(first),
                                words.begin() + static_cast<ptrdiff_t>(first + kStreamWords));
    }
    found.push_back(std::move(seen));
    return;
  }
}

// A process has its own file open as long as it lives, and its forked children inherit it.
std::vector<ino_t> read_open_files(const std::string& prefix, int physical, std::vector<Seen>& found) {
  std::vector<ino_t> open_files;
  for_each_name("/proc/self/fd", [&](const char* name) {
    char target[512] = {};
    const std::string link = std::string("/proc/self/fd/") + name;
    if (readlink(link.c_str(), target, sizeof target - 1) <= 0) return;
    if (!begins_with(target, kFolder + prefix) && !begins_with(target, kUnnamed)) return;
    const int file = std::atoi(name);
    struct stat status;
    if (fstat(file, &status) != 0) return;
    open_files.push_back(status.st_ino);
    // Its lock is no other's; that of a parent is.
    const int holder = holder_of(file);
    read_device(file, holder == 0 ? getpid() : holder, physical, found);
  });
  return open_files;
}

std::vector<Seen> read_all(const std::string& machine, int physical) {
  std::vector<Seen> found;
  const std::string prefix = "torch-loom-" + std::to_string(geteuid()) + "-" + machine + "-";
  const std::vector<ino_t> open_files = read_open_files(prefix, physical, found);
  for_each_name(kFolder, [&](const char* name) {
    if (!begins_with(name, prefix)) return;
    const std::string path = std::string(kFolder) + name;
    struct stat status;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) return;
    if (std::find(open_files.begin(), open_files.end(), status.st_ino) != open_files.end()) return;
    // Left-over files are removed by the processes that use devices.
    const int file = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (const int holder = holder_of(file)) read_device(file, holder, physical, found);
    close(file);
  });
  return found;
}

struct Idle {
  double kernels = 1, anything = 1;
};

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
    if (began != 0 && began < end)
      busy[runs_copy ? 1 : 0] += static_cast<double>(end - std::max(began, start));
    const auto length = static_cast<double>(end - start);
    idle[place].kernels *= 1.0 - std::min(busy[0] / length, 1.0);
    idle[place].anything *= 1.0 - std::min((busy[0] + busy[1]) / length, 1.0);
  }
}

// Of streams that have buckets of one size. What they did in the same bucket is taken to overlap by chance.
Busy share_of(const std::vector<const Stream*>& streams, int shift, uint64_t now, uint64_t period) {
  const uint64_t begin = now > period ? now - period : 0, first = begin >> shift;
  std::vector<Idle> idle((now >> shift) - first + 1);
  for (const Stream* stream : streams) fold(*stream, shift, first, now, idle);
  Busy busy;
  for (size_t place = 0; place < idle.size(); ++place) {
    const uint64_t from = std::max((first + place) << shift, begin),
                   to = std::min((first + place + 1) << shift, now);
    const double length = to > from ? static_cast<double>(to - from) : 0.0;
    busy.kernels += length * (1.0 - idle[place].kernels);
    busy.kernels_or_copies += length * (1.0 - idle[place].anything);
  }
  const auto whole = static_cast<double>(period);
  return {std::min(busy.kernels / whole, 1.0), std::min(busy.kernels_or_copies / whole, 1.0)};
}

}  // namespace

uint64_t Use::memory_bytes() const {
  uint64_t sum = 0;
  for (const Process& process : processes) sum += process.memory_bytes;
  return sum;
}

Use use_of(const std::string& machine, int physical) {
  const auto period = static_cast<uint64_t>(clock::ticks_per_second());
  const std::vector<Seen> found = read_all(machine, physical);
  const uint64_t now = clock::host_ticks();
  Use use;
  std::map<int, std::vector<const Stream*>> by_shift;
  for (const Seen& seen : found) {
    std::vector<const Stream*> own;
    for (const Stream& stream : seen.streams) own.push_back(&stream);
    std::vector<const Stream*>& all = by_shift[seen.shift];
    all.insert(all.end(), own.begin(), own.end());
    use.processes.push_back({seen.pid, seen.memory_bytes, share_of(own, seen.shift, now, period)});
  }
  Idle idle;
  for (const auto& [shift, streams] : by_shift) {
    const Busy busy = share_of(streams, shift, now, period);
    idle.kernels *= 1.0 - busy.kernels;
    idle.anything *= 1.0 - busy.kernels_or_copies;
  }
  use.busy = {1.0 - idle.kernels, 1.0 - idle.anything};
  return use;
}

unsigned percent(double share) {
  const auto rounded = static_cast<unsigned>(std::nearbyint(100 * share));
  return std::min(100U, std::max(rounded, share > 0 ? 1U : 0U));
}

}  // namespace loom::nvml
