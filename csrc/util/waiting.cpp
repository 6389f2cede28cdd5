#include "util/waiting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace loom {

namespace {

std::atomic<void (*)()> wait_check{nullptr};

void sleep_on(const void* word, int operation, uint32_t value, std::chrono::nanoseconds longest) noexcept {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec time{static_cast<time_t>(longest.count() / kSecond),
                      static_cast<long>(longest.count() % kSecond)};
  syscall(SYS_futex, word, operation, value, &time, nullptr, 0);
}

void wake_all(const void* word, int operation) noexcept {
  syscall(SYS_futex, word, operation, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void check_wait() {
  if (void (*const check)() = wait_check.load(std::memory_order_acquire)) check();
}

void set_wait_check(void (*check)()) noexcept { wait_check.store(check, std::memory_order_release); }

void sleep_on(std::atomic<int32_t>& word, int32_t value, std::chrono::nanoseconds longest) noexcept {
  sleep_on(&word, FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(value), longest);
}
void wake_all(std::atomic<int32_t>& word) noexcept { wake_all(&word, FUTEX_WAKE_PRIVATE); }

void sleep_on_shared(const void* word, uint32_t value, std::chrono::nanoseconds longest) noexcept {
  sleep_on(word, FUTEX_WAIT, value, longest);
}
void wake_all_sharing(const void* word) noexcept { wake_all(word, FUTEX_WAKE); }

}  // namespace loom
