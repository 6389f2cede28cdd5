// Many threads at once: what sanitizers look at.
#include <array>
#include <cstring>
#include <random>

#include "check.h"

namespace loom::test {

using driver::Event;
using driver::Launch;
using driver::Stream;

namespace {

constexpr int kNumThreads = 8, kNumStreams = 6, kNumEvents = 4;

struct Planned : std::runtime_error {
  Planned() : std::runtime_error("planned") {}
};

struct Counts {
  std::atomic<int> submitted{0}, released{0}, raised{0};
  // Not atomic: the stream orders its kernels.
  std::array<int64_t, kNumStreams> ran{};
  std::array<std::atomic<bool>, kNumStreams> running{};
  std::atomic<bool> overlapped{false};
};

struct Work {
  Counts& counts;
  size_t stream;
  bool fails;
};

void run_work(void* context, Stream) {
  const Work& work = *static_cast<Work*>(context);
  if (work.counts.running[work.stream].exchange(true)) work.counts.overlapped = true;
  ++work.counts.ran[work.stream];
  work.counts.running[work.stream] = false;
  if (work.fails) throw Planned();
}

void release_work(void* context) {
  auto* const work = static_cast<Work*>(context);
  ++work->counts.released;
  delete work;
}

void stress(Launch launch, int num_steps) {
  Chip chip(launch, 11);
  std::array<Stream, kNumStreams> streams{};
  for (int i = 0; i < kNumStreams; ++i) {
    streams[static_cast<size_t>(i)] = i < 2 ? chip.inline_stream() : chip.side_stream();
  }
  std::array<Event, kNumEvents> events{};
  for (Event& event : events) event = chip.event();
  Counts counts;

  const auto body = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < num_steps; ++step) {
      const size_t index = random() % kNumStreams;
      const Stream stream = streams[index];
      const Event event = events[random() % kNumEvents];
      try {
        switch (const unsigned kind = random() % 16) {
          default: {
            ++counts.submitted;
            auto* const work = new Work{counts, index, random() % 64 == 0};
            chip->submit(stream, {"work", run_work, release_work, work, /*in_place=*/kind == 9});
            break;
          }
          case 10:
          case 11:
            chip->record_event(event, stream);
            break;
          case 12:
            chip->wait_event(stream, event);
            break;
          case 13:
            chip->query_event(event);
            chip->query_stream(stream);
            chip->runs_in_place(stream);
            break;
          case 14:
            chip->synchronize_stream(stream, driver::OnFailure::kKeep);
            break;
          case 15:
            if (random() % 2 == 0) {
              chip->synchronize_stream(stream);
            } else {
              chip->synchronize_event(event);
            }
            break;
        }
      } catch (const Planned&) {
        ++counts.raised;
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kNumThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
  for (const Stream stream : streams) {
    while (throws<Planned>([&] { chip->synchronize_stream(stream); })) {
    }
    CHECK(chip->query_stream(stream));
  }
  CHECK(counts.released == counts.submitted && !counts.overlapped && counts.raised > 0);
}

}  // namespace

TEST(eight_threads_six_streams) {
  for (const Launch launch : {Launch::kAuto, Launch::kBlocking, Launch::kChaos}) stress(launch, 3000);
}

TEST(streams_and_events_come_and_go) {
  Chip chip;
  const auto body = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 100; ++round) {
      const Stream one = random() % 2 ? chip.inline_stream() : chip.side_stream();
      const Stream other = random() % 2 ? chip.inline_stream() : chip.side_stream();
      int value = 0, seen = 0;
      const Event event = chip->create_event({});
      chip.submit(one, [&] { value = 1; });
      chip->record_event(event, one);
      chip->wait_event(other, event);
      chip->destroy_event(event);
      chip.submit(other, [&] { seen = value; });
      chip->destroy_stream(other);
      CHECK(seen == 1);
      chip->destroy_stream(one);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace loom::test
