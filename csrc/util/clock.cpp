#include "util/clock.h"

#include <thread>

namespace loom::clock {

std::atomic<Source*> detail::source{nullptr};

namespace {

// What turns the source's time into nanoseconds since 1970.
std::atomic<int64_t> source_epoch_ns{0};

struct Moment {
  uint64_t ticks;
  std::chrono::steady_clock::time_point time;
};

Moment now() { return {host_ticks(), std::chrono::steady_clock::now()}; }

}  // namespace

void set_source(Source* source) noexcept {
  if (source != nullptr) source_epoch_ns.store(host_wall_ns() - source->now_ns(), std::memory_order_relaxed);
  detail::source.store(source, std::memory_order_release);
}

int64_t host_wall_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t wall_ns() noexcept {
  if (Source* other = detail::source.load(std::memory_order_acquire)) [[unlikely]] {
    return source_epoch_ns.load(std::memory_order_relaxed) + other->now_ns();
  }
  return host_wall_ns();
}

uint64_t Source::ticks() noexcept {
  static const double per_nanosecond = ticks_per_second() / 1e9;
  return static_cast<uint64_t>(static_cast<double>(now_ns()) * per_nanosecond);
}

double ticks_per_second() {
  static const Moment first = now();
  Moment last = now();
  while (last.time - first.time < std::chrono::microseconds(200)) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    last = now();
  }
  return static_cast<double>(last.ticks - first.ticks) /
         std::chrono::duration<double>(last.time - first.time).count();
}

}  // namespace loom::clock
