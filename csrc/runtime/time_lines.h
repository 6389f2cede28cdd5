// The simulated clock's time lines, and what each command does to them. Times are nanoseconds, from 0 for
// each world. The caller keeps other threads out, except readers of World::host_ns.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/device.h"
#include "runtime/simulated_clock.h"

namespace loom::runtime::simulated {

struct DeviceLine {
  bool is_described = false;
  DeviceFigures figures{};
  std::array<int64_t, kNumStreamIds> streams{};  // when each has run what was issued to it
  std::array<int64_t, 2> engines{};              // when each copy engine is free: from the host, to the host
  std::array<bool, kNumStreamIds> waits_for_flag{};
  int64_t busy_until() const { return *std::max_element(streams.begin(), streams.end()); }
};

// The devices that a program sees at a time.
struct World {
  std::atomic<int64_t> host_ns{0};
  std::vector<DeviceLine> devices;
  std::unordered_map<const void*, int64_t> events;  // when each was last recorded

  DeviceLine& line_of(int device) {
    const auto index = static_cast<size_t>(device);
    if (index >= devices.size()) devices.resize(index + 1);
    return devices[index];
  }
  void host_reaches(int64_t time) noexcept {
    if (host_ns.load(std::memory_order_relaxed) < time) host_ns.store(time, std::memory_order_relaxed);
  }
  // Copies all of another one.
  void become(const World& other) {
    devices = other.devices;
    events = other.events;
    host_ns.store(other.host_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  void host_takes(int64_t nanoseconds) noexcept {
    host_ns.store(host_ns.load(std::memory_order_relaxed) + nanoseconds, std::memory_order_relaxed);
  }
};

enum class Act : uint8_t {
  kRun,
  kTransfer,
  kRecordEvent,
  kWaitEvent,
  kSynchronizeEvent,
  kSynchronizeStream,
  kSynchronizeDevice,
  kDestroyEvent,
  kIssueReplay,
};

struct Unknown;  // a cost that is not estimated yet

// What a command does to the time lines.
struct Step {
  World* world = nullptr;
  const void* event = nullptr;
  Joint* joint = nullptr;
  Unknown* unknown = nullptr;  // else the cost is `nanoseconds`
  int64_t nanoseconds = 0;
  int32_t device = 0;
  uint16_t place = 0;  // of its stream among the device's
  Act act = Act::kRun;
  bool is_issued : 1 = false;  // by the host, at its price
  bool is_to_device : 1 = false;
  bool keeps_host : 1 = false;  // memory that may be paged out is copied with the host's help
  bool waits_for_flag : 1 = false;
  bool clears_flag : 1 = false;
};

inline size_t place_of(int64_t stream) noexcept {
  return static_cast<size_t>(stream & ((int64_t{1} << kStreamIdBits) - 1)) % kNumStreamIds;
}

// When what a step runs can begin.
inline int64_t ready_ns(World& world, const Step& step) {
  const DeviceLine& line = world.line_of(step.device);
  const int64_t issued =
      world.host_ns.load(std::memory_order_relaxed) + (step.is_issued ? line.figures.issue_ns : 0);
  return std::max(issued, line.streams[step.place]);
}

// Puts what takes so long behind what its stream has, and returns when it runs. The path of every op. What
// takes no time runs no kernel, so that the host issues none.
inline Span lay(World& world, DeviceLine& line, size_t place, int64_t nanoseconds, bool is_issued) noexcept {
  if (is_issued && nanoseconds != 0) world.host_takes(line.figures.issue_ns);
  int64_t& stream = line.streams[place];
  const int64_t began = std::max(stream, world.host_ns.load(std::memory_order_relaxed));
  stream = began + nanoseconds;
  return {began, stream};
}

// Takes a step whose cost is known, and returns when it runs; of what runs nothing, when the host has done
// it. `world`: the step's, or a copy of it.
Span take(World& world, const Step& step, int64_t nanoseconds);

}  // namespace loom::runtime::simulated
