#include "runtime/ipc/shared_events.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/blocking.h"
#include "runtime/capture.h"
#include "runtime/ipc/shared_files.h"
#include "runtime/runtime.h"
#include "util/waiting.h"

namespace loom::runtime::shared_events {

namespace {

constexpr char kMagic[8] = {'L', 'O', 'O', 'M', 'E', 'V', 'T', '2'};
// How long a waiter sleeps before it looks whether the other process is alive.
constexpr std::chrono::milliseconds kNap{20};

struct Page {
  Key key;
  std::atomic<uint64_t> recorded, finished;  // versions
  std::atomic<uint64_t> recorder;            // the byte that the process of the last version has locked
  std::atomic<uint64_t> failures;            // of the last 64 versions, a bit each
  std::atomic<uint32_t> bell;                // changes when one finishes
};

struct Handle {
  char magic[8];
  Key key;
  FileName file;
  // Of the rest. The file's name alone would not show all damage: the numbers of this process's threads, and
  // of its children, name the same file.
  uint64_t digest;

  uint64_t right_digest() const {
    return digest_of({reinterpret_cast<const char*>(this), offsetof(Handle, digest)});
  }
};

class SharedEvent {
 public:
  explicit SharedEvent(File file) : file_(std::move(file)), mapping_(file_, sizeof(Page)) {
    lock_range(file_.descriptor(), place_, 1);
  }
  Page& page() const { return *static_cast<Page*>(mapping_.address()); }
  const File& file() const { return file_; }

  uint64_t begin_version() {
    page().recorder.store(place_);
    const uint64_t version = page().recorded.fetch_add(1) + 1;
    own_.store(version);
    page().failures.fetch_and(~bit(version));
    return version;
  }
  void end_version(uint64_t version, bool has_failed) {
    if (has_failed) page().failures.fetch_or(bit(version));
    uint64_t finished = page().finished.load();
    while (finished < version && !page().finished.compare_exchange_weak(finished, version)) {
    }
    page().bell.fetch_add(1);
    wake_all_sharing(&page().bell);
  }
  // The last version is this process's: the driver knows all about it.
  bool is_own() const { return page().recorded.load() == own_.load(); }
  uint64_t last() const { return page().recorded.load(); }
  bool is_finished(uint64_t version) const { return page().finished.load() >= version; }
  void wait(uint64_t version) const {
    Page& shared = page();
    while (shared.finished.load() < version) {
      const uint32_t bell = shared.bell.load();
      const uint64_t recorder = shared.recorder.load();
      if (shared.finished.load() >= version) break;
      sleep_on_shared(&shared.bell, bell, kNap);
      check_wait();
      const bool is_alive = recorder == place_ || is_locked_by_others(file_.descriptor(), recorder, 1);
      if (!is_alive && recorder == shared.recorder.load() && shared.finished.load() < version) {
        throw SharerGone("the process that recorded the event ended before the work before it had finished");
      }
    }
    if ((shared.failures.load() & bit(version)) != 0 && shared.recorded.load() < version + 64) {
      throw SharingError("the work before the event failed in the process that recorded it");
    }
  }

 private:
  static uint64_t bit(uint64_t version) { return uint64_t{1} << (version % 64); }
  // Beyond the end of the file: a byte that stands for this process.
  static uint64_t random_place() { return (random_key()[0] >> 2) | (uint64_t{1} << 61); }

  const File file_;
  const Mapping mapping_;
  const uint64_t place_ = random_place();
  std::atomic<uint64_t> own_{0};
};

using Shared = std::shared_ptr<SharedEvent>;

struct Events {
  std::mutex mutex;
  std::map<driver::Event, Shared> known;
};

Events& events() {
  static auto* const all = new Events;
  return *all;
}

std::atomic<int> num_events{0};

Shared find(driver::Event event) {
  if (!are_there()) return nullptr;
  const std::lock_guard<std::mutex> lock(events().mutex);
  const auto found = events().known.find(event);
  return found == events().known.end() ? nullptr : found->second;
}

void keep(driver::Event event, Shared shared) {
  const std::lock_guard<std::mutex> lock(events().mutex);
  if (events().known.emplace(event, std::move(shared)).second) ++num_events;
}

// Ends a version in stream order: when it runs, or is dropped.
struct Signal {
  const Shared shared;
  const uint64_t version;
  bool has_run = false;
};

void submit_signal(const Shared& shared, StreamRef stream) {
  const auto run = [](void* context, driver::Stream) { static_cast<Signal*>(context)->has_run = true; };
  const auto release = [](void* context) {
    const std::unique_ptr<Signal> signal(static_cast<Signal*>(context));
    signal->shared->end_version(signal->version, !signal->has_run);
  };
  auto* const signal = new Signal{shared, shared->begin_version()};
  const Device& device = get().device(stream.device);
  untold::submit(device.driver(), device.stream(stream.id),
                 {"signal to other processes", run, release, signal});
}

struct Wait {
  const Shared shared;
  const uint64_t version;
};

}  // namespace

bool are_there() noexcept { return num_events.load(std::memory_order_relaxed) != 0; }

bool is_shared(driver::Event event) { return find(event) != nullptr; }

void share(driver::Event event, const StreamRef* stream) {
  if (find(event) != nullptr) return;
  auto shared = std::make_shared<SharedEvent>(make_shared_file(sizeof(Page)));
  shared->page().key = random_key();
  if (stream != nullptr) submit_signal(shared, *stream);
  keep(event, std::move(shared));
}

std::string handle_of(driver::Event event) {
  const Shared shared = find(event);
  if (shared == nullptr) throw InvalidArgument("the event is not shared with other processes");
  Handle handle{};
  std::memcpy(handle.magic, kMagic, sizeof kMagic);
  handle.key = shared->page().key;
  handle.file = name_of(shared->file().descriptor());
  handle.digest = handle.right_digest();
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

void open(driver::Event event, const std::string& text) {
  Handle handle{};
  if (text.size() == sizeof handle) std::memcpy(&handle, text.data(), sizeof handle);
  if (std::memcmp(handle.magic, kMagic, sizeof kMagic) != 0 || handle.digest != handle.right_digest()) {
    throw SharingError("this is no handle of an event, or a damaged one (" + std::to_string(text.size()) +
                       " bytes)");
  }
  auto shared = std::make_shared<SharedEvent>(open_shared_file(handle.file));
  if (shared->page().key != handle.key) throw SharingError("the event of the handle is there no more");
  keep(event, std::move(shared));
}

void recorded(driver::Event event, StreamRef stream) {
  if (const Shared shared = find(event)) submit_signal(shared, stream);
}

bool wait(StreamRef stream, driver::Event event) {
  const Shared shared = find(event);
  if (shared == nullptr || shared->is_own()) return false;
  if (is_captured(stream)) capture::forbid_on(stream, "waiting for another process");
  const uint64_t version = shared->last();
  if (runs_in_place(stream) || shared->is_finished(version)) {
    // Nothing could run before it anyway.
    call_blocking([&] { shared->wait(version); });
    return true;
  }
  const auto run = [](void* context, driver::Stream) {
    const Wait& wait = *static_cast<const Wait*>(context);
    wait.shared->wait(wait.version);
  };
  const auto release = [](void* context) { delete static_cast<const Wait*>(context); };
  const Device& device = get().device(stream.device);
  untold::submit(device.driver(), device.stream(stream.id),
                 {"wait for another process", run, release, new Wait{shared, version}});
  return true;
}

bool query(driver::Event event, bool* is_finished) {
  const Shared shared = find(event);
  if (shared == nullptr || shared->is_own()) return false;
  *is_finished = shared->is_finished(shared->last());
  return true;
}

bool synchronize(driver::Event event) {
  const Shared shared = find(event);
  if (shared == nullptr || shared->is_own()) return false;
  call_blocking([&] { shared->wait(shared->last()); });
  return true;
}

void forget(driver::Event event) {
  if (!are_there()) return;
  Shared last;  // closed without the lock
  const std::lock_guard<std::mutex> lock(events().mutex);
  const auto found = events().known.find(event);
  if (found == events().known.end()) return;
  last = std::move(found->second);
  events().known.erase(found);
  --num_events;
}

}  // namespace loom::runtime::shared_events
