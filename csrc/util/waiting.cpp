#include "util/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace loom {

namespace {

std::atomic<void (*)()> wait_check{nullptr};

long futex(std::atomic<int32_t>& word, int operation, int32_t value, const timespec* longest) noexcept {
  return syscall(SYS_futex, reinterpret_cast<int32_t*>(&word), operation, value, longest, nullptr, 0);
}

}  // namespace

void check_wait() {
  if (void (*const check)() = wait_check.load(std::memory_order_acquire)) check();
}

void set_wait_check(void (*check)()) noexcept { wait_check.store(check, std::memory_order_release); }

void sleep_on(std::atomic<int32_t>& word, int32_t value, std::chrono::nanoseconds longest) noexcept {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec time{static_cast<time_t>(longest.count() / kSecond),
                      static_cast<long>(longest.count() % kSecond)};
  futex(word, FUTEX_WAIT_PRIVATE, value, &time);
}

void wake_all(std::atomic<int32_t>& word) noexcept { futex(word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr); }

}  // namespace loom
