#include "runtime/time_lines.h"

namespace loom::runtime::simulated {

namespace {

Span host_span(const World& world) noexcept {
  const int64_t now = world.host_ns.load(std::memory_order_relaxed);
  return {now, now};
}

// A stream that waits for the device's flag goes on when another has cleared it.
void follow_flag(DeviceLine& line, const Step& step) noexcept {
  if (step.waits_for_flag) line.waits_for_flag[step.place] = true;
  if (!step.clears_flag) return;
  for (size_t other = 0; other < line.streams.size(); ++other) {
    if (!line.waits_for_flag[other]) continue;
    line.waits_for_flag[other] = false;
    line.streams[other] = std::max(line.streams[other], line.streams[step.place]);
  }
}

Span run(World& world, const Step& step, int64_t nanoseconds) {
  DeviceLine& line = world.line_of(step.device);
  // A collective's own time may be none.
  if (step.joint != nullptr && nanoseconds == 0 && step.is_issued) world.host_takes(line.figures.issue_ns);
  Span span = lay(world, line, step.place, nanoseconds, step.is_issued);
  if (step.joint != nullptr) [[unlikely]] {
    // It waits for others on its stream, and then takes its time.
    span.ended_ns = line.streams[step.place] = step.joint->lay(span.began_ns) + nanoseconds;
  }
  if (step.waits_for_flag || step.clears_flag) [[unlikely]] {
    follow_flag(line, step);
  }
  return span;
}

Span transfer(World& world, const Step& step, int64_t nanoseconds) {
  DeviceLine& line = world.line_of(step.device);
  if (step.is_issued) world.host_takes(line.figures.issue_ns);
  int64_t& stream = line.streams[step.place];
  int64_t& engine = line.engines[step.is_to_device ? 0 : 1];
  const int64_t began = std::max({stream, engine, world.host_ns.load(std::memory_order_relaxed)});
  stream = engine = began + nanoseconds;
  if (step.keeps_host) world.host_reaches(stream);
  return {began, stream};
}

void order(World& world, const Step& step) {
  DeviceLine& line = world.line_of(step.device);
  int64_t& stream = line.streams[step.place];
  if (step.act == Act::kRecordEvent) {
    world.events[step.event] = std::max(world.host_ns.load(std::memory_order_relaxed), stream);
  } else if (step.act == Act::kWaitEvent) {
    const auto found = world.events.find(step.event);
    if (found != world.events.end()) stream = std::max(stream, found->second);
  } else {
    world.host_reaches(step.act == Act::kSynchronizeStream ? stream : line.busy_until());
  }
}

// What concerns an event and no device.
void settle_event(World& world, const Step& step) {
  const auto found = world.events.find(step.event);
  if (found == world.events.end()) return;
  if (step.act == Act::kSynchronizeEvent) {
    world.host_reaches(found->second);
  } else {
    world.events.erase(found);
  }
}

}  // namespace

Span take(World& world, const Step& step, int64_t nanoseconds) {
  switch (step.act) {
    case Act::kRun:
      return run(world, step, nanoseconds);
    case Act::kTransfer:
      return transfer(world, step, nanoseconds);
    case Act::kIssueReplay:
      if (step.is_issued) world.host_takes(world.line_of(step.device).figures.issue_ns);
      break;
    case Act::kSynchronizeEvent:
    case Act::kDestroyEvent:
      settle_event(world, step);
      break;
    default:
      order(world, step);
      break;
  }
  return host_span(world);
}

}  // namespace loom::runtime::simulated
