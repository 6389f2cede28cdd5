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
  struct Value {
    uint64_t one = 0, other = 0;
    bool operator==(const Value& value) const = default;
  };

  std::optional<Value> find(const CallKey& key) const noexcept {
    const Value value{one_.load(std::memory_order_relaxed), other_.load(std::memory_order_relaxed)};
    if ((first_.load(std::memory_order_relaxed) ^ value.one) != key.first ||
        (second_.load(std::memory_order_relaxed) ^ value.one ^ value.other) != key.second) {
      return std::nullopt;
    }
    return value;
  }
  void put(const CallKey& key, Value value) noexcept {
    one_.store(value.one, std::memory_order_relaxed);
    other_.store(value.other, std::memory_order_relaxed);
    first_.store(key.first ^ value.one, std::memory_order_relaxed);
    second_.store(key.second ^ value.one ^ value.other, std::memory_order_relaxed);
  }
  bool is_empty() const noexcept { return first_.load(std::memory_order_relaxed) == 0; }

 private:
  // Read without a lock: the halves of the key show whether the words belong together.
  std::atomic<uint64_t> first_{0}, second_{0}, one_{0}, other_{0};
};

}  // namespace loom
