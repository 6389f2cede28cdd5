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
  const Span span = simulated::take(*step.world, step, nanoseconds);
  if (steps_.size() >= kMaxSteps) {
    Joint& oldest = *steps_.front().joint;
    begin(oldest, oldest.ready_ns_);
  }
  return span;
}

void JointSteps::begin(Joint& joint, int64_t begins_ns) {
  if (!joint.is_open_) return;
  joint.is_open_ = false;
  joint.begins_ns_ = begins_ns;
  if (joint.ready_ns_ < 0) return;  // its step has not been taken yet
  const bool is_moved = begins_ns > joint.ready_ns_;
  advance();
  if (is_moved) take_again();
}

void JointSteps::advance() {
  for (; !steps_.empty() && !is_open(steps_.front()); steps_.pop_front()) {
    const Step& step = steps_.front();
    simulated::take(settled_, step, step.nanoseconds);
    if (step.joint != nullptr) joints_.pop_front();
  }
}

void JointSteps::take_again() {
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
