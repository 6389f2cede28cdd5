// A key and what is known of it, in a table that any thread reads and writes without a lock. A slot that two
// threads write at once fits no key, in practice.
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
  static constexpr uint64_t kUsed = 0x9E3779B97F4A7C15ull;  // so that an empty slot fits no key in practice

  // Two words that are read without a lock: `check_` tells whether they belong together.
  std::atomic<uint64_t> check_{0}, value_{0};
};

}  // namespace loom
