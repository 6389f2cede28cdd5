// Waits that last, and their end before their time: what a thread of the program does while it waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace loom {

// A thread that waits calls check_wait() so often, and holds no lock meanwhile.
constexpr std::chrono::milliseconds kWaitSlice{50};

// Throws where the program wants the wait to end (Ctrl-C), and otherwise returns soon. It may run code of the
// program's.
void check_wait();
// What that calls; null: nothing.
void set_wait_check(void (*check)()) noexcept;

// Sleeps while `word` has this value, until wake_all() of it or for so long.
void sleep_on(std::atomic<int32_t>& word, int32_t value, std::chrono::nanoseconds longest) noexcept;
void wake_all(std::atomic<int32_t>& word) noexcept;
// The same, where processes share the word's memory.
void sleep_on_shared(const void* word, uint32_t value, std::chrono::nanoseconds longest) noexcept;
void wake_all_sharing(const void* word) noexcept;

}  // namespace loom
