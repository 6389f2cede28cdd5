// Failures that reach whoever waits, once, and drop what depended on them.
#include "check.h"

namespace loom::test {

using driver::Event;
using driver::Launch;
using driver::Stream;

namespace {

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

// A stream with a failure kept, with one command behind it; `num_released` counts both.
Stream failed_stream(Chip& chip, std::atomic<int>& num_released, bool& ran_behind) {
  struct Counted {
    std::atomic<int>* num_released;
    bool* ran_behind;
  };
  const Stream stream = chip.side_stream();
  const auto release = [](void* context) {
    auto* const counted = static_cast<Counted*>(context);
    ++*counted->num_released;
    delete counted;
  };
  chip->submit(stream,
               {"fails", [](void*, Stream) { throw Boom(); }, release, new Counted{&num_released, nullptr}});
  chip->submit(stream,
               {"behind", [](void* context, Stream) { *static_cast<Counted*>(context)->ran_behind = true; },
                release, new Counted{&num_released, &ran_behind}});
  return stream;
}

bool runs(Chip& chip, Stream stream) {
  bool ran = false;
  chip.submit(stream, [&] { ran = true; });
  chip->synchronize_stream(stream);
  return ran;
}

// All ways of waiting that raise.
enum class Way { kStream, kEvent, kInPlace, kCopy, kWaitingStream, kWaitingInPlace };
constexpr Way kWays[] = {Way::kStream, Way::kEvent,         Way::kInPlace,
                         Way::kCopy,   Way::kWaitingStream, Way::kWaitingInPlace};

void wait(Chip& chip, Way way, Stream stream, Stream waiting, void* device) {
  char pageable[8];
  switch (way) {
    case Way::kStream:
      return chip->synchronize_stream(stream);
    case Way::kEvent:
      return chip->synchronize_event(chip.recorded(stream));
    case Way::kInPlace:
      return chip.submit(stream, [] {}, /*in_place=*/true);
    case Way::kCopy:
      return chip->copy(stream, pageable, device, 8);
    case Way::kWaitingStream:
      chip->wait_event(waiting, chip.recorded(stream));
      return chip->synchronize_stream(waiting);
    case Way::kWaitingInPlace:
      chip->wait_event(waiting, chip.recorded(stream));
      return chip.submit(waiting, [] {}, /*in_place=*/true);
  }
}

}  // namespace

TEST(every_way_of_waiting_raises_once) {
  for (const Launch launch : {Launch::kAuto, Launch::kChaos}) {
    for (const bool waits_inline : {false, true}) {
      for (const Way way : kWays) {
        Chip chip(launch, 7);
        std::atomic<int> num_released{0};
        bool ran_behind = false;
        const Stream stream = failed_stream(chip, num_released, ran_behind);
        const Stream waiting = waits_inline ? chip.inline_stream() : chip.side_stream();
        void* const device = chip->allocate(0, 8);
        CHECK(throws<Boom>([&] { wait(chip, way, stream, waiting, device); }));
        for (const Way again : kWays) wait(chip, again, stream, waiting, device);
        CHECK(num_released == 2 && !ran_behind);
        CHECK(runs(chip, stream) && runs(chip, waiting));
      }
    }
  }
}

TEST(draining_and_asking_raise_nothing) {
  for (const Launch launch : {Launch::kAuto, Launch::kChaos}) {
    Chip chip(launch);
    std::atomic<int> num_released{0};
    bool ran_behind = false;
    const Stream stream = failed_stream(chip, num_released, ran_behind);
    chip->synchronize_stream(stream, driver::OnFailure::kKeep);
    CHECK(num_released == 2 && !ran_behind);
    CHECK(chip->query_stream(stream));
    const Event event = chip.recorded(stream);
    CHECK(chip->query_event(event) || launch == Launch::kChaos);
    chip->synchronize_stream(stream, driver::OnFailure::kKeep);
    CHECK(!chip->runs_in_place(stream));
    CHECK(throws<NotReady>([&] { chip->elapsed_ns(event, event); }));
    CHECK(throws<Boom>([&] { chip->synchronize_event(event); }));
    CHECK(runs(chip, stream));
  }
}

TEST(a_destroyed_stream_forgets_its_failure) {
  for (const Launch launch : {Launch::kAuto, Launch::kChaos}) {
    Chip chip(launch);
    std::atomic<int> num_released{0};
    bool ran_behind = false;
    chip->destroy_stream(failed_stream(chip, num_released, ran_behind));
    CHECK(num_released == 2 && !ran_behind);
  }
}

TEST(other_streams_go_on) {
  Chip chip;
  const Stream failing = chip.side_stream(), other = chip.side_stream(), behind = chip.side_stream();
  const Event before = chip.recorded(failing);
  chip.submit(failing, [] { throw Boom(); });
  const Event after = chip.recorded(failing);
  chip->wait_event(other, before);
  chip->wait_event(behind, after);
  bool ran_behind = false;
  chip.submit(behind, [&] { ran_behind = true; });
  const Event still_behind = chip.recorded(behind);
  CHECK(runs(chip, other));
  chip->synchronize_stream(behind, driver::OnFailure::kKeep);
  CHECK(!ran_behind);
  CHECK(throws<Boom>([&] { chip->synchronize_event(still_behind); }));
  chip->synchronize_stream(failing);
  chip->synchronize_stream(behind);
  CHECK(runs(chip, failing) && runs(chip, behind));
}

TEST(what_was_submitted_before_the_raise_stays_dropped) {
  for (int round = 0; round < 100; ++round) {
    Chip chip;
    const Stream failing = chip.side_stream(), waiting = chip.side_stream(), slow = chip.side_stream();
    Gate gate;
    chip.submit(slow, [&] { gate.wait(); });
    chip.submit(failing, [] { throw Boom(); });
    chip->wait_event(waiting, chip.recorded(slow));
    chip->wait_event(waiting, chip.recorded(failing));
    int dropped = 0, ran = 0;
    chip.submit(waiting, [&] { ++dropped; });
    CHECK(throws<Boom>([&] { chip->synchronize_stream(failing); }));
    chip.submit(waiting, [&] { ++ran; });
    gate.open();
    chip->synchronize_stream(waiting);
    CHECK(dropped == 0 && ran == 1);
  }
}

TEST(two_failures_are_raised_one_by_one) {
  Chip chip;
  const Stream one = chip.side_stream(), other = chip.side_stream(), both = chip.inline_stream();
  for (const Stream stream : {one, other}) {
    chip.submit(stream, [] { throw Boom(); });
    chip->wait_event(both, chip.recorded(stream));
  }
  CHECK(throws<Boom>([&] { chip->synchronize_stream(both); }));
  CHECK(throws<Boom>([&] { chip->synchronize_stream(both); }));
  CHECK(runs(chip, both) && runs(chip, one) && runs(chip, other));
}

TEST(a_failure_in_the_callers_thread_leaves_submit) {
  for (const bool in_place : {false, true}) {
    for (const Launch launch : {Launch::kAuto, Launch::kBlocking}) {
      Chip chip(launch);
      const Stream stream = chip.inline_stream();
      CHECK(throws<Boom>([&] { chip.submit(stream, [] { throw Boom(); }, in_place); }));
      chip->synchronize_stream(stream);
      CHECK(runs(chip, stream));
    }
  }
  Chip chip(Launch::kBlocking);
  CHECK(throws<Boom>([&] { chip.submit(chip.side_stream(), [] { throw Boom(); }); }));
}

TEST(a_failure_of_an_in_place_kernel_behind_others) {
  for (const Launch launch : {Launch::kAuto, Launch::kChaos}) {
    Chip chip(launch);
    const Stream stream = chip.side_stream();
    for (int i = 0; i < 100; ++i) chip.submit(stream, [] {});
    CHECK(throws<Boom>([&] { chip.submit(stream, [] { throw Boom(); }, /*in_place=*/true); }));
    CHECK(runs(chip, stream));
  }
}

TEST(of_many_waiting_threads_one_is_told) {
  Chip chip;
  for (int round = 0; round < 50; ++round) {
    const Stream stream = chip.side_stream();
    Gate gate;
    chip.submit(stream, [&] {
      gate.wait();
      throw Boom();
    });
    const Event event = chip.recorded(stream);
    std::atomic<int> num_notified{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        try {
          if (i % 2 == 0) {
            chip->synchronize_stream(stream);
          } else {
            chip->synchronize_event(event);
          }
        } catch (const Boom&) {
          ++num_notified;
        }
      });
    }
    gate.open();
    for (std::thread& thread : threads) thread.join();
    CHECK(num_notified == 1);
    CHECK(runs(chip, stream));
    chip->destroy_stream(stream);
  }
}

}  // namespace loom::test
