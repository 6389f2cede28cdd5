// A key and its value, in a table that any thread reads and writes without a lock. A slot whose words are of
// two writers, or of none, fits a given key with a chance of one in 2^64.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "util/call_key.h"

namespace loom {

class CheckedSlot {
 public:
  std::optional<uint64_t> find(const CallKey& key) const noexcept {
    const uint64_t value = value_.load(std::memory_order_relaxed);
    if ((first_.load(std::memory_order_relaxed) ^ value) != key.first ||
        (second_.load(std::memory_order_relaxed) ^ value) != key.second) {
      return std::nullopt;
    }
    return value;
  }
  void put(const CallKey& key, uint64_t value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    first_.store(key.first ^ value, std::memory_order_relaxed);
    second_.store(key.second ^ value, std::memory_order_relaxed);
  }
  bool is_empty() const noexcept { return first_.load(std::memory_order_relaxed) == 0; }

 private:
  // Read without a lock: the halves of the key show whether the words belong together.
  std::atomic<uint64_t> first_{0}, second_{0}, value_{0};
};

}  // namespace loom
