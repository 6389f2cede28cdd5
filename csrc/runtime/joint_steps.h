// Steps behind kernels that begin together with others, of other processes, and may still be moved. The
// caller holds the clock's lock.
#pragma once

#include <deque>
#include <memory>

#include "runtime/time_lines.h"

namespace loom::runtime::simulated {

class JointSteps {
 public:
  bool empty() const noexcept { return steps_.empty(); }
  // As take(), on the step's own world: keeps the step if a joint that is open has come before it. Then it
  // may be taken as late as at refresh(), and nothing is returned.
  Span take(const Step& step, int64_t nanoseconds);
  // Before times are read: takes the steps as far as it is known now when joints begin.
  void refresh();
  // A step of it will be taken, after those of all joints that were held before.
  void hold(std::shared_ptr<Joint> joint) { joints_.push_back(std::move(joint)); }
  void begin(Joint& joint, int64_t begins_ns);
  int64_t ready_ns(const Joint& joint);
  void describe(const World& world, int device, const DeviceFigures& figures);

 private:
  // The most steps of 48 bytes: a kernel that begins later than so many others begins when it is ready.
  static constexpr size_t kMaxSteps = 1 << 17;
  static bool is_open(const Step& step) noexcept { return step.joint != nullptr && step.joint->is_open_; }
  // Takes the steps before the first open joint for good.
  void advance();

  World* world_ = nullptr;  // of all steps here
  World settled_;           // before the first of them
  std::deque<Step> steps_;
  bool is_stale_ = false;  // the world is not as after these steps
  std::deque<std::shared_ptr<Joint>> joints_;
};

}  // namespace loom::runtime::simulated
