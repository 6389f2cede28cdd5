// Fallbacks: what a chip does not do itself. Its description lists its native ops and dtypes; an op outside
// of them runs like all others, but is counted, and reported once or refused, in the thread that issues it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "torch/core/dtype_set.h"

namespace loom::glue::fallback {

namespace detail {
extern std::atomic<DtypeSet> watched;
}  // namespace detail

// Whether an op on operands of these dtypes may fall back: the only cost where everything is native.
inline bool is_watched(DtypeSet used) noexcept {
  return (used & detail::watched.load(std::memory_order_relaxed)) != 0;
}

// How often an op was not native, and whether that was reported: for the op as such (place 0) and for each
// dtype (place 1 + c10::ScalarType).
struct Uses {
  static constexpr size_t kNumReasons = 64;
  explicit Uses(std::string op_name) : name(std::move(op_name)) {}
  const std::string name;  // "aten::mul"
  std::atomic<int64_t> counts[kNumReasons]{};
  std::atomic<uint64_t> is_notified[kNumReasons]{};  // a bit a kind of chip
};

// What chips make of one overload of an op. Lives as long as the process.
struct Op {
  std::string shown, overload;              // as the chips' lists have it
  bool is_exempt = false;                   // copies, views, fills: native in every dtype
  Uses* uses = nullptr;                     // shared by the overloads
  mutable std::atomic<uint64_t> known{0};   // kinds of chip that have been asked, a bit each
  mutable std::atomic<uint64_t> native{0};  // of those: the op is in their list
};

// The entry of an op: worked out once, after the first use of a device. `name` is without the overload.
const Op& op_of(const std::string& name, const std::string& overload);

// Whether an op on operands of these dtypes falls back on a device.
bool falls_back(const Op& op, DtypeSet used, const runtime::Device& device);
// Counts an op on operands of these dtypes if it falls back on a device, and calls the notifier as
// set_refuses() says. Takes Python's lock for the notifier; throws what it throws.
void check(const Op& op, DtypeSet used, int device);
// The same for the op as such, whatever its operands: true when it is not native, and has been counted.
bool check_op(const Op& op, int device);

// The rule itself, whether or not there is a device: why an op on operands of these dtypes falls back on a
// chip. Nothing: it is native; empty: the op is not; else the dtype that is not.
std::optional<std::string> reason_of(const runtime::Chip& chip, const std::string& name,
                                     const std::string& overload, const std::vector<std::string>& dtypes);

// Notes in a device that is made what its chip does itself. Chips with the same lists are of one kind.
void prepare(runtime::Device& device);
// Looks out for what may fall back on these devices, and for nothing else.
void watch(const runtime::Runtime& devices);
// At the first use of a device. With `refuses` the notifier, which then throws, is called for each fallback;
// otherwise once for each kind of chip.
void set_refuses(bool refuses);

struct Count {
  std::string op, dtype;  // dtype: empty when the op itself is not native
  int64_t count;
};
std::vector<Count> counts();
// Sets all counts to 0; each fallback is reported again.
void reset();

// dtype: the reason; null: the op itself is. `operands`: the dtypes that it was called with.
using Notifier = void (*)(const std::string& op, const char* dtype, const std::vector<std::string>& operands,
                          int device);
void set_notifier(Notifier notifier);

}  // namespace loom::glue::fallback
