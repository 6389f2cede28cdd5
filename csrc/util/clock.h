// The clock of events, profiles, activity and histories, so that one source of time replaces all of them at
// once. Spinning and timeouts use the host's clock instead.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace loom::clock {

// A source of time in the place of the host's: a simulated clock.
class Source {
 public:
  virtual ~Source() = default;
  // Nanoseconds; never goes back. Called from any thread, between commands and within them: it must not issue
  // any, nor take a lock under which some are issued.
  virtual int64_t now_ns() noexcept = 0;
  // The same in ticks.
  virtual uint64_t ticks() noexcept;
};

namespace detail {
extern std::atomic<Source*> source;
}  // namespace detail

// From now on, in every thread, time is that of `source`; null: the host's again. Other threads may still be
// reading the previous source, so a source lives as long as the process.
void set_source(Source* source) noexcept;

// The host's own monotonic clock; its zero is arbitrary.
inline int64_t host_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Nanoseconds of a clock that never goes back; its zero is arbitrary.
inline int64_t now_ns() noexcept {
  if (Source* other = detail::source.load(std::memory_order_acquire)) [[unlikely]] {
    return other->now_ns();
  }
  return host_ns();
}

// Nanoseconds since 1970. A simulated clock goes on from the moment at which it was set.
int64_t wall_ns() noexcept;

// The same of the host's own clock.
int64_t host_wall_ns() noexcept;

// The processor's own counter, read in a third of the time that a clock takes. The same in all threads and
// processes.
inline uint64_t host_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Now, in ticks; ticks_per_second() of them are a second whatever the source.
inline uint64_t ticks() noexcept {
  if (Source* other = detail::source.load(std::memory_order_acquire)) [[unlikely]] {
    return other->ticks();
  }
  return host_ticks();
}

// Measured since the first call, which takes some 200 microseconds.
double ticks_per_second();

}  // namespace loom::clock
