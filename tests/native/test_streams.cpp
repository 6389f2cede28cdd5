// Streams, events and in-place kernels, where workers run what cannot run here.
#include <array>
#include <chrono>
#include <cstring>
#include <memory>

#include "check.h"
#include "util/clock.h"

namespace loom::test {

using driver::Event;
using driver::Launch;
using driver::Stream;

namespace {

std::thread::id here() { return std::this_thread::get_id(); }

}  // namespace

TEST(an_idle_inline_stream_runs_here) {
  Chip chip;
  const Stream stream = chip.inline_stream();
  std::thread::id ran_in;
  CHECK(chip->runs_in_place(stream));
  chip.submit(stream, [&] { ran_in = here(); });
  CHECK(ran_in == here());
}

TEST(a_side_stream_runs_elsewhere_and_in_order) {
  Chip chip;
  const Stream stream = chip.side_stream();
  std::vector<int> ran;
  std::thread::id ran_in;
  CHECK(!chip->runs_in_place(stream));
  for (int i = 0; i < 1000; ++i) {
    chip.submit(stream, [&, i] {
      ran.push_back(i);
      ran_in = here();
    });
  }
  chip->synchronize_stream(stream);
  CHECK(ran.size() == 1000 && ran_in != here());
  for (int i = 0; i < 1000; ++i) CHECK(ran[static_cast<size_t>(i)] == i);
}

TEST(side_streams_overlap) {
  Chip chip;
  const Stream one = chip.side_stream(), other = chip.side_stream();
  Gate first, second;
  // Each waits for the other: only two threads can do that.
  chip.submit(one, [&] {
    first.open();
    second.wait();
  });
  chip.submit(other, [&] {
    first.wait();
    second.open();
  });
  chip->synchronize_stream(one);
  chip->synchronize_stream(other);
}

TEST(an_inline_stream_behind_an_event_queues) {
  Chip chip;
  const Stream side = chip.side_stream(), main = chip.inline_stream();
  Gate gate;
  std::vector<int> ran;
  chip.submit(side, [&] {
    gate.wait();
    ran.push_back(1);
  });
  chip->wait_event(main, chip.recorded(side));
  CHECK(!chip->runs_in_place(main) && !chip->query_stream(main));
  chip.submit(main, [&] { ran.push_back(2); });
  const Event end = chip.recorded(main);
  CHECK(ran.empty() && !chip->query_event(end));
  gate.open();
  chip->synchronize_event(end);
  CHECK((ran == std::vector<int>{1, 2}));
  chip->synchronize_stream(main, driver::OnFailure::kKeep);
  CHECK(chip->runs_in_place(main));
}

TEST(a_wait_that_is_over_costs_no_worker) {
  Chip chip;
  const Stream side = chip.side_stream(), main = chip.inline_stream();
  Gate gate;
  chip.submit(side, [&] { gate.wait(); });
  chip->wait_event(main, chip.recorded(side));
  gate.open();
  chip->synchronize_stream(side);
  CHECK(chip->query_stream(main));
  std::thread::id ran_in;
  chip.submit(main, [&] { ran_in = here(); });
  CHECK(ran_in == here());
}

TEST(an_in_place_kernel_runs_here_after_what_is_pending) {
  Chip chip;
  for (const Stream stream : {chip.side_stream(), chip.inline_stream()}) {
    const Stream side = chip.side_stream();
    Gate gate;
    std::vector<int> ran;
    std::thread::id ran_in;
    chip.submit(side, [&] { gate.wait(); });
    chip->wait_event(stream, chip.recorded(side));
    for (int i = 0; i < 3; ++i) chip.submit(stream, [&, i] { ran.push_back(i); });
    std::thread opener([&] { gate.open(); });
    chip.submit(
        stream,
        [&] {
          ran.push_back(3);
          ran_in = here();
        },
        /*in_place=*/true);
    CHECK((ran == std::vector<int>{0, 1, 2, 3}) && ran_in == here());
    opener.join();
  }
}

TEST(what_has_been_waited_for_is_idle) {
  Chip chip;
  const Stream side = chip.side_stream(), main = chip.inline_stream();
  for (int i = 0; i < 2000; ++i) {
    chip.submit(side, [] {});
    const Event event = chip.recorded(side);
    chip->wait_event(main, event);
    chip.submit(main, [] {});
    if (i % 3 == 0) {
      chip->synchronize_stream(main);
      chip->synchronize_event(event);
    } else if (i % 3 == 1) {
      chip.submit(main, [] {}, /*in_place=*/true);
    } else {
      chip->synchronize_event(chip.recorded(main));
    }
    CHECK(chip->query_stream(main) && chip->runs_in_place(main) && chip->query_stream(side));
  }
}

TEST(in_place_kernels_of_a_busy_stream_are_served_in_turn) {
  // One thread keeps the stream busy until the other has had its turn.
  Chip chip;
  for (const Stream stream : {chip.side_stream(), chip.inline_stream()}) {
    std::atomic<bool> served{false};
    std::thread producer([&] {
      while (!served.load()) chip.submit(stream, [] {});
    });
    for (int i = 0; i < 10; ++i) chip.submit(stream, [] {}, /*in_place=*/true);
    served = true;
    producer.join();
    chip->synchronize_stream(stream);
  }
}

TEST(what_a_kernel_submits_to_its_own_stream_is_part_of_it) {
  for (const Launch launch : {Launch::kAuto, Launch::kBlocking, Launch::kChaos}) {
    Chip chip(launch);
    for (const Stream stream : {chip.side_stream(), chip.inline_stream()}) {
      const Stream other = chip.side_stream();
      const Event inner = chip.event();
      std::vector<int> ran;
      bool was_finished = true;
      chip.submit(stream, [&] {
        ran.push_back(0);
        chip.submit(stream, [&] { ran.push_back(1); });
        chip.submit(stream, [&] { ran.push_back(2); }, /*in_place=*/true);
        chip->record_event(inner, stream);
        was_finished = chip->query_event(inner);
        chip->wait_event(other, inner);
        CHECK(throws<InvalidArgument>([&] { chip->synchronize_stream(stream); }));
        ran.push_back(3);
      });
      chip->synchronize_stream(stream);
      chip.submit(other, [&] { ran.push_back(4); });
      chip->synchronize_stream(other);
      CHECK((ran == std::vector<int>{0, 1, 2, 3, 4}) && !was_finished);
    }
  }
}

TEST(a_wait_in_a_kernel_holds_what_comes_later) {
  for (const Launch launch : {Launch::kAuto, Launch::kChaos}) {
    Chip chip(launch);
    for (const Stream stream : {chip.side_stream(), chip.inline_stream()}) {
      const Stream slow = chip.side_stream();
      Gate gate;
      std::atomic<int> stage{0};
      chip.submit(slow, [&] {
        if (launch == Launch::kAuto) gate.wait();  // in chaos there is no thread to wait in
        stage = 1;
      });
      const Event event = chip.recorded(slow);
      chip.submit(stream, [&] { chip->wait_event(stream, event); });
      int seen = -1;
      chip.submit(stream, [&] { seen = stage; });
      gate.open();
      chip->synchronize_stream(stream);
      CHECK(seen == 1);
      chip->synchronize_stream(slow);
    }
  }
}

TEST(recording_again_keeps_earlier_waits) {
  Chip chip;
  const Stream slow = chip.side_stream(), waiting = chip.side_stream(), idle = chip.inline_stream();
  Gate gate;
  bool after = false, seen = false;
  chip.submit(slow, [&] {
    gate.wait();
    after = true;
  });
  const Event event = chip.recorded(slow);
  chip->wait_event(waiting, event);
  chip->record_event(event, idle);
  CHECK(chip->query_event(event));
  chip.submit(waiting, [&] { seen = after; });
  gate.open();
  chip->synchronize_stream(waiting);
  CHECK(seen);
}

TEST(many_commands_wait_for_room) {
  Chip chip;
  const Stream stream = chip.side_stream();
  int ran = 0;
  for (int i = 0; i < 50000; ++i) chip.submit(stream, [&] { ++ran; });
  chip->synchronize_stream(stream);
  CHECK(ran == 50000);
}

TEST(many_waits_need_no_room) {
  Chip chip;
  const Stream slow = chip.side_stream(), stream = chip.inline_stream();
  Gate gate;
  chip.submit(slow, [&] { gate.wait(); });
  const Event event = chip.recorded(slow);
  for (int i = 0; i < 10000; ++i) chip->wait_event(stream, event);
  int ran = 0;
  chip.submit(stream, [&] { ++ran; });
  gate.open();
  chip->synchronize_stream(stream);
  CHECK(ran == 1);
}

TEST(a_kernel_may_fill_another_stream) {
  // The stream waits for the kernel's own end, so the kernel must not wait for room there.
  Chip chip;
  const Stream main = chip.inline_stream(), side = chip.side_stream();
  int ran = 0;
  chip.submit(main, [&] {
    const Event end = chip.event();
    chip->record_event(end, main);
    chip->wait_event(side, end);
    for (int i = 0; i < 10000; ++i) chip.submit(side, [&] { ++ran; });
  });
  chip->synchronize_stream(side);
  CHECK(ran == 10000);
}

TEST(copies_and_fills_are_queued) {
  Chip chip;
  const Stream side = chip.side_stream();
  auto* const device = static_cast<char*>(chip->allocate(0, 64));
  auto* const pinned = static_cast<char*>(chip->allocate_host(64));
  char pageable[64] = {};
  Gate gate;
  pinned[0] = 'a';
  chip.submit(side, [&] { gate.wait(); });
  chip->copy(side, device, pinned, 64);
  chip->fill(side, device + 1, 'b', 1);
  pinned[0] = 'c';  // before the copy runs
  gate.open();
  chip->copy(side, pageable, device, 64);
  CHECK(pageable[0] == 'c' && pageable[1] == 'b');
  chip->deallocate(pinned);
}

TEST(a_stream_that_did_nothing_can_be_destroyed) {
  Chip chip;
  for (int i = 0; i < 100; ++i) chip->destroy_stream(chip.side_stream());
  for (int i = 0; i < 20; ++i) {
    const Stream stream = chip.side_stream();
    bool ran = false;
    chip.submit(stream, [&] { ran = true; });
    chip->destroy_stream(stream);
    CHECK(ran);
  }
}

TEST(elapsed_time_is_taken_when_the_stream_gets_there) {
  Chip chip;
  const Stream side = chip.side_stream();
  const Event start = chip.event(), end = chip.event();
  chip->record_event(start, side);
  chip.submit(side, [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  chip->record_event(end, side);
  chip->synchronize_event(end);
  CHECK(chip->elapsed_ns(start, end) >= 5000000);
}

namespace {

// How long kernels and copies ran, in ticks, as another process reads it from the words of the activity.
struct Busy {
  uint64_t kernels = 0, copies = 0;
};

Busy busy(const driver::StreamActivity& activity) {
  constexpr size_t kHeaderWords = 8, kBuckets = driver::activity::kNumBuckets;
  std::array<uint64_t, kHeaderWords + 2 * kBuckets> words;
  static_assert(sizeof words == sizeof activity);
  std::memcpy(words.data(), static_cast<const void*>(&activity), sizeof words);
  Busy found;
  for (size_t i = 0; i < kBuckets; ++i) {
    found.kernels += words[kHeaderWords + i] & 0xFFFFFFFF;
    found.copies += words[kHeaderWords + kBuckets + i] & 0xFFFFFFFF;
  }
  return found;
}

}  // namespace

TEST(a_stream_notes_what_it_runs) {
  const int shift = driver::activity::bucket_shift(clock::ticks_per_second());
  for (const Launch launch : {Launch::kAuto, Launch::kBlocking, Launch::kChaos}) {
    for (const bool inline_when_idle : {true, false}) {
      Chip chip(launch);
      const auto noted = std::make_unique<driver::StreamActivity>();
      noted->prepare(shift);
      const Stream stream =
          chip->create_stream(0, {.inline_when_idle = inline_when_idle, .activity = noted.get()});
      const Stream other = chip->create_stream(0, {});
      auto* const pinned = static_cast<char*>(chip->allocate_host(1 << 20));
      chip.submit(other, [] {});
      chip->synchronize_stream(other);
      CHECK(busy(*noted).kernels == 0 && busy(*noted).copies == 0);
      chip.submit(stream, [=] { std::memset(pinned, 1, 1 << 20); });
      chip->synchronize_stream(stream);
      CHECK(busy(*noted).kernels != 0 && busy(*noted).copies == 0);
      chip->copy(stream, pinned, pinned + (1 << 19), 1 << 19);
      chip->synchronize_stream(stream);
      CHECK(busy(*noted).copies != 0);
      chip->deallocate(pinned);
      for (const Stream each : {stream, other}) chip->destroy_stream(each);
    }
  }
}

TEST(a_kernel_is_told_its_stream) {
  for (const Launch launch : {Launch::kAuto, Launch::kBlocking, Launch::kChaos}) {
    Chip chip(launch);
    for (const Stream stream : {chip.inline_stream(), chip.side_stream()}) {
      for (const bool in_place : {true, false}) {
        Stream told = nullptr;
        const auto run = [](void* context, Stream own) { *static_cast<Stream*>(context) = own; };
        chip->submit(stream, {"asks", run, nullptr, &told, in_place});
        chip->synchronize_stream(stream);
        CHECK(told == stream);
      }
    }
  }
}

}  // namespace loom::test
