// What is worked out once for all calls of an op that have the same key: the op, its operands, the arguments
// that decide what a kernel allocates and costs, the device in its world, the default dtype, and whether the
// program wants deterministic ops. Nothing else may decide a plan.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/simulated_clock.h"
#include "torch/engine/output_allocation.h"
#include "util/checked_slot.h"

namespace loom::glue {

struct CallPlan {
  // Each call is counted as a fallback, refused, widened or an alert.
  bool has_rules = false;
  // The boxed kernel runs it, for one of these reasons or another.
  bool is_boxed = false;
  // `outputs` is known: a call has shown it.
  bool knows_outputs = false;
  OutputMask outputs = 0;
  // Of a run in the caller's thread, to the simulated clock; kNoCost: it wants to see the kernel.
  int64_t cost = runtime::simulated::kNoCost;
};

// The plans of one op, from any thread and without a lock. Most ops have few; where they are more than fit, a
// plan is overwritten by another and forgotten.
class PlanTable {
 public:
  PlanTable() = default;
  ~PlanTable() {
    for (const std::atomic<CheckedSlot*>& slots : larger_) delete[] slots.load(std::memory_order_relaxed);
  }
  PlanTable(const PlanTable&) = delete;
  PlanTable& operator=(const PlanTable&) = delete;

  std::optional<CallPlan> find(const CallKey& key) const {
    if (const auto found = find_in(small_.data(), small_.size(), key)) return unpacked(*found);
    for (size_t level = 0; level < kLarger.size(); ++level) {
      const CheckedSlot* slots = larger_[level].load(std::memory_order_acquire);
      if (slots == nullptr) break;
      if (const auto found = find_in(slots, kLarger[level], key)) return unpacked(*found);
    }
    return std::nullopt;
  }

  void put(const CallKey& key, const CallPlan& plan) {
    const CheckedSlot::Value value = packed(plan);
    if (put_in(small_.data(), small_.size(), key, value)) return;
    for (size_t level = 0; level < kLarger.size(); ++level) {
      if (put_in(slots_of(level), kLarger[level], key, value)) return;
    }
    slots_of(kLarger.size() - 1)[key.first & (kLarger.back() - 1)].put(key, value);
  }

  // Whether all that kernels of the op allocated so far became outputs.
  bool knows_no_scratch() const { return scratch_.load(std::memory_order_relaxed) == Scratch::kNone; }
  // A kernel has made so many allocations, of which these became outputs.
  void note_allocations(OutputMask outputs, size_t num_allocations) {
    if (static_cast<size_t>(std::popcount(outputs)) != num_allocations) {
      scratch_.store(Scratch::kSome, std::memory_order_relaxed);
    } else if (outputs != 0 && scratch_.load(std::memory_order_relaxed) == Scratch::kUnknown) {
      Scratch unknown = Scratch::kUnknown;
      scratch_.compare_exchange_strong(unknown, Scratch::kNone, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr size_t kProbes = 4;
  static constexpr std::array<size_t, 2> kLarger = {128, 4096};

  static CheckedSlot::Value packed(const CallPlan& plan) {
    return {plan.outputs, static_cast<uint64_t>(plan.cost) << 3 | uint64_t{plan.has_rules} << 2 |
                              uint64_t{plan.is_boxed} << 1 | uint64_t{plan.knows_outputs}};
  }
  static CallPlan unpacked(const CheckedSlot::Value& value) {
    return {(value.other & 4) != 0, (value.other & 2) != 0, (value.other & 1) != 0, value.one,
            static_cast<int64_t>(value.other) >> 3};
  }

  static std::optional<CheckedSlot::Value> find_in(const CheckedSlot* slots, size_t size,
                                                   const CallKey& key) {
    for (size_t i = 0; i < kProbes; ++i) {
      if (const auto value = slots[(key.first + i) & (size - 1)].find(key)) return value;
    }
    return std::nullopt;
  }

  static bool put_in(CheckedSlot* slots, size_t size, const CallKey& key, const CheckedSlot::Value& value) {
    for (size_t i = 0; i < kProbes; ++i) {
      CheckedSlot& slot = slots[(key.first + i) & (size - 1)];
      if (!slot.is_empty() && !slot.find(key).has_value()) continue;
      slot.put(key, value);
      return true;
    }
    return false;
  }

  CheckedSlot* slots_of(size_t level) {
    CheckedSlot* slots = larger_[level].load(std::memory_order_acquire);
    if (slots != nullptr) return slots;
    auto fresh = std::make_unique<CheckedSlot[]>(kLarger[level]);
    if (larger_[level].compare_exchange_strong(slots, fresh.get(), std::memory_order_acq_rel))
      return fresh.release();
    return slots;
  }

  enum class Scratch : uint8_t { kUnknown, kNone, kSome };
  std::atomic<Scratch> scratch_{Scratch::kUnknown};
  std::array<CheckedSlot, 8> small_;
  std::array<std::atomic<CheckedSlot*>, kLarger.size()> larger_{};
};

}  // namespace loom::glue
