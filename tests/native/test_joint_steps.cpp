// Steps behind kernels that begin together with others of other processes: whenever it becomes known when
// those begin, the time lines end as if it had been known from the start.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "runtime/joint_steps.h"

namespace {

namespace simulated = loom::runtime::simulated;
using simulated::Act;
using simulated::Joint;
using simulated::JointSteps;
using simulated::Step;
using simulated::World;

constexpr int kNumStreams = 4, kNumEvents = 3;

struct Program {
  std::vector<Step> steps;
  std::vector<int> events;      // of each step
  std::vector<int64_t> begins;  // by joint, in the order of the steps; −1: of a step without one
};

Program random_program(std::mt19937& random, int length) {
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  Program program;
  for (int i = 0; i < length; ++i) {
    Step step;
    step.place = static_cast<uint16_t>(below(kNumStreams));
    step.nanoseconds = below(100);
    constexpr Act kActs[] = {
        Act::kRun,      Act::kRun,          Act::kRecordEvent,       Act::kWaitEvent,
        Act::kTransfer, Act::kDestroyEvent, Act::kSynchronizeStream, Act::kSynchronizeDevice};
    step.act = kActs[below(static_cast<int>(std::size(kActs)))];
    step.is_issued = true;
    program.steps.push_back(step);
    program.events.push_back(below(kNumEvents));
    program.begins.push_back(step.act == Act::kRun && below(4) == 0 ? below(3000) : -1);
  }
  return program;
}

// Takes a program, whose joints begin in any order at any moment; its world at the end. `ready`: when joints
// are ready, as far as it is final when it is asked for.
void run(const Program& program, std::mt19937* order, World& world, std::vector<int64_t>& ready) {
  static const int events[kNumEvents] = {};
  world.line_of(0).figures.issue_ns = 5;
  ready.assign(program.steps.size(), -1);
  JointSteps kept;
  struct Open {
    std::shared_ptr<Joint> joint;
    size_t step;
  };
  std::vector<Open> open;
  const auto begin_one = [&](size_t which) {
    const Open one = open[which];
    const int64_t found = kept.ready_ns(*one.joint);
    if (which == 0) ready[one.step] = found;
    kept.begin(*one.joint, program.begins[one.step]);
    open.erase(open.begin() + static_cast<long>(which));
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step step = program.steps[i];
    step.world = &world;
    step.event = &events[program.events[i]];
    std::shared_ptr<Joint> joint;
    if (program.begins[i] >= 0) {
      joint = std::make_shared<Joint>();
      step.joint = joint.get();
      kept.hold(joint);
      open.push_back({joint, i});
    }
    kept.take(step, step.nanoseconds);
    if (order == nullptr && !open.empty()) begin_one(0);
    while (order != nullptr && !open.empty() && (*order)() % 6 == 0) begin_one((*order)() % open.size());
    if (order != nullptr && (*order)() % 8 == 0) kept.refresh();
  }
  while (!open.empty()) begin_one(order == nullptr ? 0 : (*order)() % open.size());
  CHECK(kept.empty());
}

}  // namespace

TEST(time_lines_do_not_depend_on_when_a_beginning_is_learned) {
  std::mt19937 random(1);
  bool was_moved = false;
  for (int trial = 0; trial < 300; ++trial) {
    const Program program = random_program(random, 60);
    World known, learned, alone;
    std::vector<int64_t> ready, found, unused;
    run(program, nullptr, known, ready);
    run(program, &random, learned, found);
    Program without = program;
    std::fill(without.begins.begin(), without.begins.end(), -1);
    run(without, nullptr, alone, unused);
    for (size_t i = 0; i < ready.size(); ++i) CHECK(found[i] == -1 || found[i] == ready[i]);
    CHECK(known.host_ns == learned.host_ns);
    CHECK(known.devices[0].streams == learned.devices[0].streams);
    CHECK(known.devices[0].engines == learned.devices[0].engines);
    CHECK(known.events == learned.events);
    was_moved = was_moved || known.host_ns != alone.host_ns;
  }
  CHECK(was_moved);
}

TEST(a_kernel_that_never_begins_is_given_up_behind_many_steps) {
  World world;
  JointSteps kept;
  const auto joint = std::make_shared<Joint>();
  kept.hold(joint);
  Step step;
  step.world = &world;
  step.joint = joint.get();
  kept.take(step, 7);
  CHECK(!kept.empty());
  step.joint = nullptr;
  for (int i = 0; i < 1 << 17; ++i) kept.take(step, 1);
  CHECK(kept.empty());
  CHECK(world.devices[0].streams[0] == 7 + (1 << 17));
  kept.begin(*joint, 1'000'000);
  CHECK(world.devices[0].streams[0] == 7 + (1 << 17));
}
