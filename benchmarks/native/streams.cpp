// What streams cost below PyTorch. Build and run:
//   g++ -std=c++20 -O2 -Icsrc benchmarks/native/streams.cpp csrc/driver/*.cpp csrc/driver/host/*.cpp
//     csrc/util/*.cpp -pthread -o build/streams && build/streams
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "driver/registry.h"

namespace {

using loom::driver::Driver;
using loom::driver::Event;
using loom::driver::Kernel;
using loom::driver::Stream;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename F>
void per_call(const char* name, F&& call) {
  constexpr int kRounds = 5, kCalls = 200000;
  double best_ns = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start_ns = now_ns();
    for (int i = 0; i < kCalls; ++i) call();
    best_ns = std::min(best_ns, static_cast<double>(now_ns() - start_ns) / kCalls);
  }
  std::printf("%-44s %8.1f ns\n", name, best_ns);
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Bursts of kernels on a side stream whose worker has just finished the burst before: it is awake.
void burst(Driver& driver, Stream side, size_t num_kernels) {
  constexpr int kBursts = 2000;
  struct Times {
    int64_t submitted_ns, started_ns;
  };
  std::vector<Times> times(num_kernels);
  std::vector<double> submit_ns, start_us;
  const auto run = [](void* context, Stream) { static_cast<Times*>(context)->started_ns = now_ns(); };
  for (int i = 0; i < kBursts; ++i) {
    for (Times& each : times) {
      each.submitted_ns = now_ns();
      driver.submit(side, {"burst", run, nullptr, &each});
    }
    submit_ns.push_back(static_cast<double>(now_ns() - times[0].submitted_ns) /
                        static_cast<double>(num_kernels));
    driver.synchronize_stream(side);
    start_us.push_back(static_cast<double>(times[0].started_ns - times[0].submitted_ns) / 1e3);
  }
  std::printf("%4zu queued: submit p50 %5.0f p99 %5.0f ns, first starts p50 %5.2f p99 %5.2f us\n",
              num_kernels, quantile(submit_ns, 0.5), quantile(submit_ns, 0.99), quantile(start_us, 0.5),
              quantile(start_us, 0.99));
}

}  // namespace

int main() {
  const auto driver = loom::driver::create_driver("virtual", {1, int64_t{1} << 30});
  const Stream main = driver->create_stream(0, {});
  const Stream side = driver->create_stream(0, {0, /*inline_when_idle=*/false});
  const Event event = driver->create_event({});
  int64_t num_run = 0;
  const Kernel kernel{"count", [](void* context, Stream) { ++*static_cast<int64_t*>(context); }, nullptr,
                      &num_run};
  per_call("submit, idle inline stream", [&] { driver->submit(main, kernel); });
  per_call("synchronize, idle stream", [&] { driver->synchronize_stream(main); });
  per_call("record, idle stream", [&] { driver->record_event(event, main); });
  per_call("wait, finished event", [&] { driver->wait_event(main, event); });
  for (const size_t num_kernels : {1, 16, 256}) burst(*driver, side, num_kernels);
  driver->destroy_event(event);
}
