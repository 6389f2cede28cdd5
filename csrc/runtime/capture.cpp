#include "runtime/capture.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/runtime.h"
#include "runtime/simulated_clock.h"

namespace loom::runtime {

struct Capture {
  // The nodes on which the next node of a stream depends.
  using Frontier = std::set<uint32_t>;

  struct Member {
    StreamRef stream;
    Frontier frontier;
  };

  // A device with streams of a capture.
  struct Joined {
    int device;
    bool takes_from_pool = false;  // its allocator takes from the capture's pool
  };

  Runtime* world;  // whose devices it is on
  StreamRef origin;
  CaptureMode mode;
  PoolId pool;
  void* owner;
  std::thread::id thread = std::this_thread::get_id();
  std::vector<Member> members;  // the origin first
  std::vector<Joined> devices;  // the origin's first
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  std::string failure;  // why it cannot end well
  bool has_ended = false;

  Member* find(StreamRef stream) {
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const Member& member) { return member.stream == stream; });
    return found == members.end() ? nullptr : &*found;
  }
  void fail(const std::string& reason) {
    if (failure.empty()) failure = reason;
  }
};

namespace capture {

std::atomic<int> num_captures{0};

namespace {

struct Mark {
  Capture* capture;
  Capture::Frontier frontier;
};

// Guards everything of every capture. Allocators ask, holding their own lock, which streams are captured:
// code that holds this lock must not allocate on a device.
std::mutex mutex;
std::vector<CaptureRef> captures;
std::unordered_map<driver::Event, Mark> marks;
thread_local int num_relaxed = 0;

using Guard = std::lock_guard<std::mutex>;

constexpr CaptureError::Kind kUnsupported{900, "cudaErrorStreamCaptureUnsupported",
                                          "operation not permitted when stream is capturing"};
constexpr CaptureError::Kind kInvalidated{901, "cudaErrorStreamCaptureInvalidated",
                                          "operation failed due to a previous error during capture"};
constexpr CaptureError::Kind kMerge{902, "cudaErrorStreamCaptureMerge",
                                    "operation would result in a merge of separate capture sequences"};
constexpr CaptureError::Kind kUnmatched{903, "cudaErrorStreamCaptureUnmatched",
                                        "capture was not ended in the same stream as it began"};
constexpr CaptureError::Kind kUnjoined{904, "cudaErrorStreamCaptureUnjoined",
                                       "capturing stream has unjoined work"};
constexpr CaptureError::Kind kIsolation{905, "cudaErrorStreamCaptureIsolation",
                                        "dependency created on uncaptured work in another stream"};
constexpr CaptureError::Kind kImplicit{
    906, "cudaErrorStreamCaptureImplicit",
    "operation would make the legacy stream depend on a capturing blocking stream"};
constexpr CaptureError::Kind kEvent{
    907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"};
constexpr CaptureError::Kind kWrongThread{
    908, "cudaErrorStreamCaptureWrongThread",
    "attempt to terminate a thread-local capture sequence from another thread"};

std::string name_of(StreamRef stream) {
  return "stream " + std::to_string(stream.id) + " of device " + std::to_string(stream.device);
}

CaptureRef find(StreamRef stream) {
  for (const CaptureRef& capture : captures) {
    if (capture->find(stream) != nullptr) return capture;
  }
  return nullptr;
}

[[noreturn]] void refuse(Capture& capture, const CaptureError::Kind& kind, const std::string& detail) {
  const CaptureError error(kind, detail);
  capture.fail(error.what());
  throw error;
}

// Refuses what the modes of the captures under way forbid this thread.
void forbid_by_mode(const std::string& what) {
  if (num_relaxed != 0) return;
  bool is_forbidden = false;
  const CaptureError error(kUnsupported, what);
  for (const CaptureRef& capture : captures) {
    if (capture->mode == CaptureMode::kRelaxed) continue;
    if (capture->mode == CaptureMode::kThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    capture->fail(error.what());
    is_forbidden = true;
  }
  if (is_forbidden) throw error;
}

bool concerns(const Capture& capture, int device) {
  return std::any_of(capture.members.begin(), capture.members.end(),
                     [&](const Capture::Member& member) { return member.stream.device == device; });
}

// Which streams have work that the origin does not wait for.
std::string unjoined(Capture& capture) {
  const std::vector<Node>& nodes = capture.recording->nodes();
  std::vector<bool> is_joined(nodes.size(), false);
  std::vector<uint32_t> pending(capture.members[0].frontier.begin(), capture.members[0].frontier.end());
  while (!pending.empty()) {
    const uint32_t node = pending.back();
    pending.pop_back();
    if (is_joined[node]) continue;
    is_joined[node] = true;
    pending.insert(pending.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  std::string names;
  for (const Capture::Member& member : capture.members) {
    const bool joined = std::all_of(member.frontier.begin(), member.frontier.end(),
                                    [&](uint32_t node) { return is_joined[node]; });
    if (!joined) names += (names.empty() ? "" : ", ") + name_of(member.stream);
  }
  return names;
}

// What is wrong with ending a capture there; none when nothing is.
std::optional<CaptureError> objection(Capture& capture, StreamRef stream) {
  if (!capture.failure.empty()) return CaptureError(kInvalidated, capture.failure);
  if (!(stream == capture.origin)) {
    return CaptureError(kUnmatched,
                        "it began on " + name_of(capture.origin) + ", " + name_of(stream) + " is current");
  }
  if (capture.mode != CaptureMode::kRelaxed && capture.thread != std::this_thread::get_id()) {
    return CaptureError(kWrongThread, "only one whose mode is relaxed ends in any thread");
  }
  if (const std::string names = unjoined(capture); !names.empty()) {
    return CaptureError(kUnjoined, name_of(capture.origin) + " must wait for an event of " + names +
                                       " before the capture ends");
  }
  return std::nullopt;
}

CachingAllocator& allocator_of(const Capture& capture, int device) {
  return *capture.world->device(device).allocator;
}

// Memory for the capture's streams on a device, which is in its list, comes from its pool. Not under the
// lock: another thread may end the capture meanwhile.
void allocate_to_pool(const CaptureRef& capture, int device) {
  const auto is_member = [capture, device](int64_t id) {
    const Guard lock(mutex);
    return !capture->has_ended && capture->find({device, id}) != nullptr;
  };
  const auto entry = [&] {
    return std::find_if(capture->devices.begin(), capture->devices.end(),
                        [&](const Capture::Joined& each) { return each.device == device; });
  };
  try {
    allocator_of(*capture, device).begin_allocate_to_pool(capture->pool, is_member, /*capturing=*/true);
  } catch (...) {
    const Guard lock(mutex);
    if (!capture->has_ended) capture->devices.erase(entry());
    throw;
  }
  {
    const Guard lock(mutex);
    if (!capture->has_ended) {
      entry()->takes_from_pool = true;
      return;
    }
  }
  allocator_of(*capture, device).end_allocate_to_pool(capture->pool);
  allocator_of(*capture, device).release_pool(capture->pool);
}

// Takes a capture off the list, once.
bool take_off(const CaptureRef& capture) {
  if (std::exchange(capture->has_ended, true)) return false;
  captures.erase(std::find(captures.begin(), captures.end(), capture));
  for (auto mark = marks.begin(); mark != marks.end();) {
    mark = mark->second.capture == capture.get() ? marks.erase(mark) : std::next(mark);
  }
  num_captures.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void leave_pools(const Capture& capture, bool keeps_use) {
  for (const auto& [device, takes_from_pool] : capture.devices) {
    if (!takes_from_pool) continue;  // the joining call undoes what it began
    allocator_of(capture, device).end_allocate_to_pool(capture.pool);
    // Memory of other devices than the graph's is kept by the tensors there alone.
    if (!keeps_use || device != capture.origin.device)
      allocator_of(capture, device).release_pool(capture.pool);
  }
}

// Appends a node; its stream's next depends on it.
void append(Capture& capture, Node node) {
  const Guard lock(mutex);
  if (capture.has_ended) {
    throw CaptureError(kInvalidated, "the capture of " + name_of(node.stream) + " has ended");
  }
  if (!capture.failure.empty()) throw CaptureError(kInvalidated, capture.failure);
  Capture::Member& member = *capture.find(node.stream);
  node.after.assign(member.frontier.begin(), member.frontier.end());
  member.frontier = {capture.recording->add(std::move(node))};
}

}  // namespace

CaptureRef begin(StreamRef stream, CaptureMode mode, PoolId pool, void* owner) {
  if (stream.id == 0) {
    throw CaptureError(kUnsupported, "the default stream cannot be captured; replays may run on it");
  }
  auto capture = std::make_shared<Capture>();
  capture->world = &get();
  capture->origin = stream;
  capture->mode = mode;
  capture->pool = pool;
  capture->owner = owner;
  capture->members.push_back({stream, {}});
  capture->devices.push_back({stream.device});
  {
    const Guard lock(mutex);
    if (find(stream) != nullptr) {
      throw CaptureError(kUnsupported, name_of(stream) + " is captured already");
    }
    captures.push_back(capture);
    num_captures.fetch_add(1, std::memory_order_relaxed);
  }
  try {
    allocate_to_pool(capture, stream.device);
  } catch (...) {
    abort(capture);
    throw;
  }
  return capture;
}

std::shared_ptr<Recording> end(const CaptureRef& capture, StreamRef stream) {
  std::optional<CaptureError> problem;
  {
    const Guard lock(mutex);
    if (capture->has_ended) throw CaptureError(kInvalidated, "the capture has ended already");
    problem = objection(*capture, stream);
    take_off(capture);
  }
  leave_pools(*capture, /*keeps_use=*/!problem.has_value());
  if (problem.has_value()) {
    capture->recording.reset();
    throw *std::move(problem);
  }
  return std::move(capture->recording);
}

void abort(const CaptureRef& capture) noexcept {
  {
    const Guard lock(mutex);
    if (!take_off(capture)) return;
  }
  leave_pools(*capture, /*keeps_use=*/false);
  capture->recording.reset();
}

void abort_all() noexcept {
  std::vector<CaptureRef> all;
  {
    const Guard lock(mutex);
    all = captures;
  }
  for (const CaptureRef& capture : all) abort(capture);
}

void* owner_of(StreamRef stream) {
  const Guard lock(mutex);
  const CaptureRef capture = find(stream);
  return capture == nullptr ? nullptr : capture->owner;
}

CaptureRef of(StreamRef stream) {
  const Guard lock(mutex);
  return find(stream);
}

void keep(Capture& capture, StreamRef stream, const driver::Kernel& kernel, const KernelRecord& record,
          std::span<const Operand> outputs) {
  try {
    append(capture, {CommandKind::kKernel,
                     kernel.name,
                     stream,
                     {},
                     kernel,
                     KeptRecord(record, outputs),
                     simulated::said_ns()});
  } catch (...) {
    if (kernel.release != nullptr) kernel.release(kernel.context);
    throw;
  }
}

void keep_copy(Capture& capture, StreamRef stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  Node node{CommandKind::kCopy, "copy", stream};
  node.destination = destination;
  node.source = source;
  node.bytes = bytes;
  append(capture, std::move(node));
}

void keep_fill(Capture& capture, StreamRef stream, void* destination, uint8_t value, size_t bytes) {
  if (bytes == 0) return;
  Node node{CommandKind::kFill, "fill", stream};
  node.destination = destination;
  node.value = value;
  node.bytes = bytes;
  append(capture, std::move(node));
}

void forbid_on_device(int device, const std::string& what) {
  const Guard lock(mutex);
  for (const CaptureRef& capture : captures) {
    if (capture->thread == std::this_thread::get_id() && concerns(*capture, device)) {
      refuse(*capture, kUnsupported, what);
    }
  }
  forbid_by_mode(what);
}

void forbid_on(StreamRef stream, const std::string& what) {
  const Guard lock(mutex);
  if (const CaptureRef capture = find(stream)) {
    refuse(*capture, kUnsupported, what + ", on " + name_of(stream));
  }
  forbid_by_mode(what);
}

void forbid_memory(StreamRef stream) {
  const Guard lock(mutex);
  if (find(stream) == nullptr)
    forbid_by_mode("an allocation that takes memory of the device, for " + name_of(stream));
}

void forbid_on(driver::Event event, const std::string& what) {
  const Guard lock(mutex);
  if (const auto mark = marks.find(event); mark != marks.end()) {
    refuse(*mark->second.capture, kEvent, what);
  }
  forbid_by_mode(what);
}

bool keep_record(driver::Event event, StreamRef stream) {
  const Guard lock(mutex);
  const CaptureRef capture = find(stream);
  if (capture == nullptr) {
    marks.erase(event);
    return false;
  }
  marks[event] = {capture.get(), capture->find(stream)->frontier};
  return true;
}

bool keep_wait(StreamRef stream, driver::Event event) {
  CaptureRef joined;
  {
    const Guard lock(mutex);
    const CaptureRef own = find(stream);
    const auto mark = marks.find(event);
    if (mark == marks.end()) {
      if (own == nullptr) return false;
      refuse(
          *own, kIsolation,
          name_of(stream) + ", which is captured, was to wait for an event recorded outside of the capture");
    }
    Capture& capture = *mark->second.capture;
    if (own != nullptr && own.get() != &capture) {
      const std::string what = name_of(stream) + " was to wait for an event of another capture";
      own->fail(CaptureError(kMerge, what).what());
      refuse(capture, kMerge, what);
    }
    if (own == nullptr) {
      if (stream.id == 0) {
        refuse(capture, kImplicit, name_of(stream) + " was to wait for an event of a capture");
      }
      capture.members.push_back({stream, {}});
      auto& devices = capture.devices;
      if (std::none_of(devices.begin(), devices.end(),
                       [&](const Capture::Joined& each) { return each.device == stream.device; })) {
        devices.push_back({stream.device});
        joined = find(stream);
      }
    }
    Capture::Frontier& frontier = capture.find(stream)->frontier;
    frontier.insert(mark->second.frontier.begin(), mark->second.frontier.end());
  }
  if (joined != nullptr) allocate_to_pool(joined, stream.device);
  return true;
}

bool is_marked(driver::Event event) {
  const Guard lock(mutex);
  return marks.count(event) != 0;
}

void forget(driver::Event event) {
  const Guard lock(mutex);
  marks.erase(event);
}

Relaxed::Relaxed() { ++num_relaxed; }
Relaxed::~Relaxed() { --num_relaxed; }

}  // namespace capture

}  // namespace loom::runtime
