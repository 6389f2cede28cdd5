#include "runtime/joint_steps.h"

namespace loom::runtime::simulated {

Span JointSteps::take(const Step& step, int64_t nanoseconds) {
  if (steps_.empty()) {
    if (!is_open(step)) {
      const Span span = simulated::take(*step.world, step, nanoseconds);
      if (step.joint != nullptr) joints_.pop_front();
      return span;
    }
    world_ = step.world;
    settled_.become(*world_);
  }
  if (step.world == world_) {
    steps_.push_back(step);
    steps_.back().unknown = nullptr;
    steps_.back().nanoseconds = nanoseconds;
  }
  Span span;
  if (!is_stale_ || step.world != world_) span = simulated::take(*step.world, step, nanoseconds);
  if (steps_.size() >= kMaxSteps) begin(*steps_.front().joint, -1);
  return span;
}

void JointSteps::begin(Joint& joint, int64_t begins_ns) {
  if (!joint.is_open_) return;
  joint.is_open_ = false;
  joint.begins_ns_ = begins_ns;
  // Its step may have been taken, as if it began sooner. Most wait for the next time that is read.
  if (!steps_.empty() && begins_ns > joint.ready_ns_) is_stale_ = true;
  advance();
}

int64_t JointSteps::ready_ns(const Joint& joint) {
  if (is_stale_ && steps_.front().joint == &joint) {
    return simulated::ready_ns(settled_, steps_.front());
  }
  refresh();
  return joint.ready_ns_;
}

void JointSteps::advance() {
  for (; !steps_.empty() && !is_open(steps_.front()); steps_.pop_front()) {
    const Step& step = steps_.front();
    simulated::take(settled_, step, step.nanoseconds);
    if (step.joint != nullptr) joints_.pop_front();
  }
  if (is_stale_ && steps_.empty()) {
    world_->become(settled_);
    is_stale_ = false;
  }
}

void JointSteps::refresh() {
  if (!is_stale_) return;
  is_stale_ = false;
  World moved;
  moved.become(settled_);
  for (const Step& step : steps_) simulated::take(moved, step, step.nanoseconds);
  world_->become(moved);
}

void JointSteps::describe(const World& world, int device, const DeviceFigures& figures) {
  if (steps_.empty() || &world != world_) return;
  DeviceLine& line = settled_.line_of(device);
  line.figures = figures;
  line.is_described = true;
}

}  // namespace loom::runtime::simulated
