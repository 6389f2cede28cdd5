// Captures and replays, by the runtime's own interface: order, ends, threads, and what the tape hears.
#include <mutex>

#include "check.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"

namespace loom::test {

using runtime::CaptureMode;
using runtime::Recording;
using runtime::Replay;
using runtime::ReplayQueue;
using runtime::Runtime;
using runtime::StreamRef;

namespace {

// The process has one.
Runtime& devices() {
  static Runtime& instance = [&]() -> Runtime& {
    runtime::Config config{};
    for (const int physical : {0, 1}) config.devices.push_back({physical, "virtual", 64 << 20});
    if (!runtime::is_initialized()) runtime::initialize(config);
    return runtime::get();
  }();
  return instance;
}

StreamRef new_stream(int device = 0) { return {device, devices().device(device).new_stream(0)}; }

// A kernel that calls `work`; `num_released` counts its releases.
template <typename F>
driver::Kernel kernel(F work, int* num_released) {
  struct Context {
    F work;
    int* num_released;
  };
  return {"test", [](void* context, driver::Stream) { static_cast<Context*>(context)->work(); },
          [](void* context) {
            ++*static_cast<Context*>(context)->num_released;
            delete static_cast<Context*>(context);
          },
          new Context{std::move(work), num_released}};
}

std::shared_ptr<Recording> capture_on(StreamRef stream, const std::function<void()>& body) {
  const runtime::PoolId pool = runtime::new_pool_id(false);
  const runtime::CaptureRef capture =
      runtime::capture::begin(stream, CaptureMode::kThreadLocal, pool, nullptr);
  try {
    body();
  } catch (...) {
    runtime::capture::abort(capture);
    throw;
  }
  std::shared_ptr<Recording> recording = runtime::capture::end(capture, stream);
  devices().device(stream.device).allocator->release_pool(pool);
  return recording;
}

void replay(ReplayQueue& queue, StreamRef stream, const std::shared_ptr<Recording>& recording) {
  queue.submit(stream, *recording, [&] { return std::make_unique<Replay>(recording); });
}

}  // namespace

TEST(a_graph_runs_its_kernels_in_order_and_releases_them_once) {
  const StreamRef stream = new_stream();
  std::vector<int> seen;
  int num_released = 0;
  {
    const auto recording = capture_on(stream, [&] {
      for (int i = 0; i < 5; ++i) submit(stream, kernel([&seen, i] { seen.push_back(i); }, &num_released));
    });
    CHECK(seen.empty() && recording->nodes().size() == 5);
    ReplayQueue queue(0);
    replay(queue, stream, recording);
    replay(queue, {0, 0}, recording);
    devices().device(0).synchronize();
    CHECK((seen == std::vector<int>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  }
  CHECK(num_released == 5);
}

TEST(copies_and_fills_are_replayed_where_the_engine_reaches_them) {
  const StreamRef stream = new_stream();
  runtime::CachingAllocator& allocator = *devices().device(0).allocator;
  auto* first = static_cast<unsigned char*>(allocator.allocate(512, stream.id));
  auto* second = static_cast<unsigned char*>(allocator.allocate(512, stream.id));
  const auto recording = capture_on(stream, [&] {
    fill(stream, first, 7, 512);
    copy(stream, second, first, 512);
    fill(stream, first, 9, 512);
  });
  ReplayQueue queue(0);
  replay(queue, stream, recording);
  devices().device(0).synchronize();
  CHECK(first[0] == 9 && second[511] == 7);
  allocator.deallocate(first);
  allocator.deallocate(second);
}

TEST(replays_of_one_graph_on_many_streams_and_threads_never_overlap) {
  const StreamRef origin = new_stream();
  int count = 0, num_released = 0;  // not atomic: the thread sanitizer sees an overlap
  const auto recording = capture_on(origin, [&] {
    for (int i = 0; i < 3; ++i) submit(origin, kernel([&count] { ++count; }, &num_released));
  });
  ReplayQueue queue(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const StreamRef streams[] = {new_stream(), new_stream()};
      for (int i = 0; i < 100; ++i) replay(queue, streams[i % 2], recording);
    });
  }
  for (std::thread& thread : threads) thread.join();
  devices().device(0).synchronize();
  CHECK(count == 4 * 100 * 3);
}

TEST(threads_capture_at_once_while_others_submit) {
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const StreamRef stream = new_stream(), side = new_stream();
      for (int round = 0; round < 20; ++round) {
        int count = 0, num_released = 0;
        const auto work = [&] {
          for (int i = 0; i < 10; ++i) submit(stream, kernel([&count] { ++count; }, &num_released));
        };
        if (t % 2 == 0) {
          work();
          devices().device(0).driver().synchronize_stream(devices().stream(0, stream.id));
        } else {
          const driver::Event event = devices().device(0).driver().create_event({});
          auto recording = capture_on(stream, [&] {
            work();
            record_event(event, stream);
            wait_event(side, event);
            submit(side, kernel([&count] { count *= 2; }, &num_released));
            record_event(event, side);
            wait_event(stream, event);
          });
          runtime::destroy_event(event);
          if (recording->nodes().back().after != std::vector<uint32_t>{9}) ++num_wrong;
          recording->run(devices().device(0).driver(), devices().stream(stream.device, stream.id), {});
          count /= 2;
        }
        if (count != 10) ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_wrong == 0);
}

// While the allocator of the device that joins is held up, another thread ends the capture.
TEST(a_capture_that_ends_while_a_device_joins_leaves_its_pool) {
  const StreamRef stream = new_stream(0), other = new_stream(1);
  runtime::CachingAllocator& allocator = *devices().device(1).allocator;
  Gate held, gate;
  const runtime::PoolId holding = runtime::new_pool_id(true);
  const auto hold = [&](int64_t) {
    held.open();
    gate.wait();
    return false;
  };
  allocator.begin_allocate_to_pool(holding, hold, /*capturing=*/false);
  std::thread holder([&] { allocator.deallocate(allocator.allocate(512, 0)); });
  held.wait();
  const runtime::PoolId pool = runtime::new_pool_id(false);
  const runtime::CaptureRef capture = runtime::capture::begin(stream, CaptureMode::kRelaxed, pool, nullptr);
  const driver::Event event = devices().device(0).driver().create_event({});
  record_event(event, stream);
  std::thread joining([&] { runtime::capture::keep_wait(other, event); });
  while (!runtime::is_captured(other)) std::this_thread::yield();
  runtime::capture::abort(capture);
  gate.open();
  holder.join();
  joining.join();
  runtime::destroy_event(event);
  CHECK(allocator.pool_use_count(pool) == 0);
  CHECK(throws<Error>([&] { allocator.end_allocate_to_pool(pool); }));
  allocator.end_allocate_to_pool(holding);
  allocator.release_pool(holding);
}

TEST(what_a_capture_refuses_ends_it_and_leaves_the_stream_usable) {
  const StreamRef stream = new_stream();
  int num_released = 0;
  const auto failing = [&] {
    capture_on(stream, [&] {
      submit(stream, kernel([] {}, &num_released));
      CHECK(throws<CaptureError>([&] { runtime::synchronize_stream(stream); }));
      CHECK(throws<CaptureError>([&] { submit(stream, kernel([] {}, &num_released)); }));
    });
  };
  CHECK(throws<CaptureError>(failing));
  CHECK(num_released == 2);
  CHECK(!runtime::is_captured(stream) && !runtime::capture::is_underway());
  runtime::synchronize_stream(stream);
  CHECK(throws<CaptureError>([&] { capture_on({0, 0}, [] {}); }));
}

TEST(the_tape_hears_a_replay_and_each_of_its_commands) {
  struct Reader final : runtime::TapeReader {
    void begin(const runtime::Command& command) override {
      const std::lock_guard<std::mutex> lock(mutex);
      kinds.push_back(command.kind);
      captured.push_back(command.is_captured);
      num_operands = command.inputs.size();
    }
    std::mutex mutex;
    std::vector<runtime::CommandKind> kinds;
    std::vector<bool> captured;
    size_t num_operands = 0;
  };
  const StreamRef stream = new_stream();
  int num_released = 0;
  const int64_t size = 4, stride = 1;
  const runtime::Operand operand{&num_released, &size, &stride, 1, 4, -1, true};
  const auto recording =
      capture_on(stream, [&] { submit(stream, kernel([] {}, &num_released), {nullptr, {&operand, 1}, {}}); });
  const auto reader = std::make_shared<Reader>();
  ReplayQueue queue(0);
  runtime::tape::attach(reader);
  replay(queue, stream, recording);
  runtime::tape::detach(reader);
  devices().device(0).synchronize();
  CHECK(reader->kinds.size() >= 2);
  CHECK(reader->kinds[0] == runtime::CommandKind::kReplay);
  CHECK(reader->kinds[1] == runtime::CommandKind::kKernel && !reader->captured[1]);
}

}  // namespace loom::test
