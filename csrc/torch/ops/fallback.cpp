#include "torch/ops/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "torch/core/device.h"

namespace loom::glue::fallback {

std::atomic<DtypeSet> detail::watched{0};

namespace {

using Names = std::unordered_set<std::string>;

constexpr DtypeSet bit(c10::ScalarType type) { return DtypeSet{1} << static_cast<int>(type); }

DtypeSet all_of(bool (*belongs)(c10::ScalarType)) {
  DtypeSet set = 0;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    if (belongs(static_cast<c10::ScalarType>(i))) set |= DtypeSet{1} << i;
  }
  return set;
}

static_assert(static_cast<size_t>(c10::ScalarType::NumOptions) < Uses::kNumReasons - 1);

// What the chip's description says, fixed at the first use.
struct Native {
  Names ops;  // of aten, without the namespace; with an overload: only that one
  bool all_ops = true;
  DtypeSet dtypes = ~DtypeSet{0};
  bool refuses = false;
};

Native& native() {
  static auto* native = new Native;
  return *native;
}

std::mutex ops_mutex;
std::map<std::string, Op> ops;                        // by name and overload
std::unordered_map<std::string, Uses*> uses_by_name;  // never freed: kernels keep references

Notifier current_notifier = nullptr;

// Moves data, or makes it without arithmetic.
bool is_moving(const std::string& name) {
  static const Names names = {
      "aten::copy_",      "aten::clone", "aten::_copy_from",     "aten::_copy_from_and_resize",
      "aten::_to_copy",   "aten::fill_", "aten::zero_",          "aten::_foreach_zero_",
      "aten::fill",       "aten::zero",  "aten::_foreach_copy_", "aten::contiguous",
      "aten::lift_fresh", "aten::lift",  "aten::is_set_to",      "aten::_efficientzerotensor",
  };
  return names.count(name) != 0;
}

bool is_view(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op.has_value() || op->schema().returns().empty()) return false;
  for (const c10::Argument& result : op->schema().returns()) {
    if (result.alias_info() == nullptr || result.alias_info()->isWrite()) return false;
  }
  return true;
}

// In the list as it is, in place (mul_), or as this very overload (max.default).
bool is_listed(const std::string& name, const std::string& overload) {
  if (native().all_ops) return true;
  constexpr std::string_view kOwn = "aten::";
  if (name.rfind(kOwn, 0) != 0) return false;
  const std::string base = name.substr(kOwn.size());
  const Names& listed = native().ops;
  return listed.count(base) != 0 ||
         (base.back() == '_' && listed.count(base.substr(0, base.size() - 1)) != 0) ||
         listed.count(base + "." + (overload.empty() ? "default" : overload)) != 0;
}

// The engine's name of an op that the device has under another.
std::string public_name(const std::string& name) {
  static const std::unordered_map<std::string, std::string> names = {
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       "aten::_scaled_dot_product_fused_attention_overrideable"},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       "aten::_scaled_dot_product_fused_attention_overrideable_backward"},
  };
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

const char* name_of(int dtype) {
  return c10::getDtypeNames(static_cast<c10::ScalarType>(dtype)).first.data();  // a literal
}

// dtype: −1 when the op itself is not native.
void note(const Op& op, int dtype, DtypeSet used, int device) {
  Uses& uses = *op.uses;
  const auto place = static_cast<size_t>(dtype + 1);
  const bool is_first = !uses.is_notified[place].exchange(true, std::memory_order_relaxed);
  if ((is_first || native().refuses) && current_notifier != nullptr) {
    std::vector<std::string> operands;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
      if ((used >> i & 1) != 0) operands.emplace_back(name_of(i));
    }
    current_notifier(uses.name, dtype < 0 ? nullptr : name_of(dtype), operands);
  }
  uses.counts[place].fetch_add(1, std::memory_order_relaxed);
  if (!runtime::tape::is_read()) return;
  const runtime::StreamRef stream = runtime::current_stream_of(device);
  runtime::Command command{};
  command.kind = runtime::CommandKind::kFallback;
  command.name = uses.name.c_str();
  command.dtype = dtype < 0 ? nullptr : name_of(dtype);
  command.device = stream.device;
  command.stream = stream.id;
  runtime::tape::write(command);
}

}  // namespace

const Op& op_of(const std::string& name, const std::string& overload) {
  const std::lock_guard<std::mutex> lock(ops_mutex);
  const auto [place, is_new] = ops.try_emplace(name + "." + overload);
  Op& op = place->second;
  if (is_new) {
    const std::string shown = public_name(name);
    op.is_native = is_listed(shown, overload);
    op.is_exempt = is_moving(name) || is_view(name, overload);
    Uses*& uses = uses_by_name[shown];
    if (uses == nullptr) uses = new Uses(shown);
    op.uses = uses;
  }
  return op;
}

void check(const Op& op, DtypeSet used, int device) {
  if (op.is_exempt) return;
  if (!op.is_native) return note(op, -1, used, device);
  // Beside floating-point operands, those of other dtypes are indices and masks, which any chip reads.
  static const DtypeSet floating =
      all_of([](c10::ScalarType type) { return c10::isFloatingType(type) || c10::isComplexType(type); });
  const DtypeSet own = used & ~kAnyOp;
  const DtypeSet computed = (own & floating) != 0 ? own & floating : own;
  const DtypeSet foreign = computed & ~native().dtypes;
  if (foreign != 0) note(op, __builtin_ctzll(foreign), used, device);
}

void configure(const runtime::Chip& chip, bool refuses) {
  Native& own = native();
  own.refuses = refuses;
  own.all_ops = !chip.native_ops.has_value();
  if (!own.all_ops) own.ops = Names(chip.native_ops->begin(), chip.native_ops->end());
  own.dtypes = 0;
  const Names dtypes(chip.dtypes.begin(), chip.dtypes.end());
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    if (type != c10::ScalarType::Undefined && dtypes.count(name_of(i)) != 0) own.dtypes |= bit(type);
  }
  detail::watched.store((~own.dtypes & ~kAnyOp) | (own.all_ops ? 0 : kAnyOp), std::memory_order_release);
}

std::vector<Count> counts() {
  const std::lock_guard<std::mutex> lock(ops_mutex);
  std::vector<Count> all;
  for (const auto& [name, uses] : uses_by_name) {
    for (size_t i = 0; i < Uses::kNumReasons; ++i) {
      const int64_t count = uses->counts[i].load(std::memory_order_relaxed);
      if (count != 0) all.push_back({name, i == 0 ? "" : name_of(static_cast<int>(i) - 1), count});
    }
  }
  return all;
}

void reset() {
  const std::lock_guard<std::mutex> lock(ops_mutex);
  for (const auto& [name, uses] : uses_by_name) {
    for (std::atomic<int64_t>& count : uses->counts) count.store(0, std::memory_order_relaxed);
    for (std::atomic<bool>& is_notified : uses->is_notified)
      is_notified.store(false, std::memory_order_relaxed);
  }
}

void set_notifier(Notifier notifier) { current_notifier = notifier; }

}  // namespace loom::glue::fallback
