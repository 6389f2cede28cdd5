// Which of a kernel's allocations become outputs, as earlier calls of an op showed it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "util/checked_slot.h"

namespace loom::glue {

// Bit n for a kernel's n-th allocation; those after the 64th are host memory.
using OutputMask = uint64_t;

// What calls of one op showed, from any thread and without a lock. It forgets: an entry may be overwritten by
// another's.
class OutputAllocationTable {
 public:
  OutputAllocationTable() = default;
  ~OutputAllocationTable() { delete large_.load(std::memory_order_relaxed); }
  OutputAllocationTable(const OutputAllocationTable&) = delete;
  OutputAllocationTable& operator=(const OutputAllocationTable&) = delete;

  std::optional<OutputMask> find(const CallKey& key) const {
    if (const auto mask = find_in(small_, key)) return mask;
    const Large* large = large_.load(std::memory_order_acquire);
    return large == nullptr ? std::nullopt : find_in(*large, key);
  }

  // Whether all that kernels of the op allocated so far became outputs.
  bool knows_no_scratch() const { return scratch_.load(std::memory_order_relaxed) == Scratch::kNone; }

  // `num_allocations`: outputs and scratch.
  void learn(const CallKey& key, OutputMask mask, size_t num_allocations) {
    if (static_cast<size_t>(std::popcount(mask)) != num_allocations) {
      scratch_.store(Scratch::kSome, std::memory_order_relaxed);
    } else if (mask != 0 && scratch_.load(std::memory_order_relaxed) == Scratch::kUnknown) {
      Scratch unknown = Scratch::kUnknown;
      scratch_.compare_exchange_strong(unknown, Scratch::kNone, std::memory_order_relaxed);
    }
    if (put_in(small_, key, mask)) return;
    Large* large = large_.load(std::memory_order_acquire);
    if (large == nullptr) {
      auto* fresh = new Large;
      if (large_.compare_exchange_strong(large, fresh, std::memory_order_acq_rel)) {
        large = fresh;
      } else {
        delete fresh;
      }
    }
    if (put_in(*large, key, mask)) return;
    (*large)[place(key, large->size())].put(key, mask);
  }

 private:
  static constexpr size_t kProbes = 4;
  using Small = std::array<CheckedSlot, 8>;
  using Large =
      std::array<CheckedSlot, 1024>;  // programs whose shapes never repeat must not grow it for ever

  static size_t place(const CallKey& key, size_t size) { return key.first & (size - 1); }

  template <typename Slots>
  static std::optional<OutputMask> find_in(const Slots& slots, const CallKey& key) {
    const size_t first = place(key, slots.size());
    for (size_t i = 0; i < kProbes; ++i) {
      if (const auto mask = slots[(first + i) & (slots.size() - 1)].find(key)) return mask;
    }
    return std::nullopt;
  }

  template <typename Slots>
  static bool put_in(Slots& slots, const CallKey& key, OutputMask mask) {
    const size_t first = place(key, slots.size());
    for (size_t i = 0; i < kProbes; ++i) {
      CheckedSlot& slot = slots[(first + i) & (slots.size() - 1)];
      if (!slot.is_empty() && !slot.find(key).has_value()) continue;
      slot.put(key, mask);
      return true;
    }
    return false;
  }

  enum class Scratch : uint8_t { kUnknown, kNone, kSome };
  std::atomic<Scratch> scratch_{Scratch::kUnknown};
  Small small_;
  std::atomic<Large*> large_{nullptr};
};

}  // namespace loom::glue
