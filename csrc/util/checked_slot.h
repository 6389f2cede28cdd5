// A key and its value, in a table that any thread reads and writes without a lock. A slot whose words are of
// two writers, or of none, fits a given key with a chance of one in 2^64.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace loom {

class CheckedSlot {
 public:
  std::optional<uint64_t> find(uint64_t key) const noexcept {
    const uint64_t value = value_.load(std::memory_order_relaxed);
    if ((check_.load(std::memory_order_relaxed) ^ value ^ kUsed) != key) return std::nullopt;
    return value;
  }
  void put(uint64_t key, uint64_t value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    check_.store(key ^ value ^ kUsed, std::memory_order_relaxed);
  }
  bool is_empty() const noexcept { return check_.load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr uint64_t kUsed = 0x9E3779B97F4A7C15ull;  // an empty slot would fit the key 0

  // Two words that are read without a lock: `check_` shows whether they belong together.
  std::atomic<uint64_t> check_{0}, value_{0};
};

}  // namespace loom
