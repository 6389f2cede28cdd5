#include "torch/ops/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "torch/core/device.h"
#include "torch/ops/op_facts.h"

namespace loom::glue::fallback {

std::atomic<DtypeSet> detail::watched{0};

namespace {

DtypeSet all_of(bool (*belongs)(c10::ScalarType)) {
  DtypeSet set = 0;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    if (belongs(static_cast<c10::ScalarType>(i))) set |= DtypeSet{1} << i;
  }
  return set;
}

static_assert(static_cast<size_t>(c10::ScalarType::NumOptions) < Uses::kNumReasons - 1);

// What the descriptions of one kind of chip say.
struct Native {
  std::optional<std::vector<std::string>> ops;  // of aten, without the namespace; not given: every op
  DtypeSet dtypes = 0;

  bool operator==(const Native&) const = default;
};

const char* name_of(int dtype) {
  return c10::getDtypeNames(static_cast<c10::ScalarType>(dtype)).first.data();  // a literal
}

DtypeSet dtypes_of(const std::vector<std::string>& names) {
  DtypeSet set = 0;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const bool is_dtype = static_cast<c10::ScalarType>(i) != c10::ScalarType::Undefined;
    if (is_dtype && std::ranges::find(names, name_of(i)) != names.end()) set |= DtypeSet{1} << i;
  }
  return set;
}

Native native_of(const runtime::Chip& chip) { return {chip.native_ops, dtypes_of(chip.dtypes)}; }

std::mutex kinds_mutex;
// Never freed, and never moved: devices are of a kind for as long as they are.
std::deque<Native>& kinds() {
  static auto* kinds = new std::deque<Native>;
  return *kinds;
}

const Native& native(const runtime::Device& device) {
  const std::lock_guard<std::mutex> lock(kinds_mutex);
  return kinds()[static_cast<size_t>(device.chip_kind)];
}

// Where an Op and its Uses remember the kind; none for those beyond the 64th of a process.
uint64_t bit_of(const runtime::Device& device) {
  return device.chip_kind < 64 ? uint64_t{1} << device.chip_kind : 0;
}

std::atomic<bool> refuses{false};

std::mutex ops_mutex;
std::map<std::string, Op> ops;                        // by name and overload
std::unordered_map<std::string, Uses*> uses_by_name;  // never freed: kernels keep references

Notifier current_notifier = nullptr;

bool moves_data(const std::string& name, const std::string& overload) {
  return facts_of(overload.empty() ? name : name + "." + overload).has(op_flag::kMovesData);
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
bool is_listed(const Native& native, const std::string& name, const std::string& overload) {
  if (!native.ops.has_value()) return true;
  constexpr std::string_view kOwn = "aten::";
  if (name.rfind(kOwn, 0) != 0) return false;
  const std::string base = name.substr(kOwn.size());
  const auto has = [&](const std::string& own) {
    return std::ranges::find(*native.ops, own) != native.ops->end();
  };
  return has(base) || (base.back() == '_' && has(base.substr(0, base.size() - 1))) ||
         has(base + "." + (overload.empty() ? "default" : overload));
}

// The first of the dtypes that an op computes in and a chip does not; −1: there is none.
int foreign_dtype(DtypeSet used, DtypeSet foreign) {
  // Beside floating-point operands, those of other dtypes are indices and masks, which any chip reads.
  static const DtypeSet floating =
      all_of([](c10::ScalarType type) { return c10::isFloatingType(type) || c10::isComplexType(type); });
  const DtypeSet own = used & ~(kAnyOp | kMixed);
  const DtypeSet found = ((own & floating) != 0 ? own & floating : own) & foreign;
  return found == 0 ? -1 : __builtin_ctzll(found);
}

// dtype: −1 when the op itself is not native.
void note(const Op& op, int dtype, DtypeSet used, const runtime::Device& device) {
  Uses& uses = *op.uses;
  const auto place = static_cast<size_t>(dtype + 1);
  const uint64_t bit = bit_of(device);
  const bool is_first = (bit & ~uses.is_notified[place].fetch_or(bit, std::memory_order_relaxed)) != 0;
  if ((is_first || refuses.load(std::memory_order_relaxed)) && current_notifier != nullptr) {
    std::vector<std::string> operands;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
      if ((used >> i & 1) != 0) operands.emplace_back(name_of(i));
    }
    current_notifier(uses.name, dtype < 0 ? nullptr : name_of(dtype), operands, device.logical);
  }
  uses.counts[place].fetch_add(1, std::memory_order_relaxed);
  if (!runtime::tape::is_told(runtime::CommandKind::kFallback)) return;
  const runtime::StreamRef stream = runtime::current_stream_of(device.logical);
  runtime::Command command = runtime::describe(runtime::CommandKind::kFallback, stream.device, stream.id);
  command.name = uses.name.c_str();
  command.dtype = dtype < 0 ? nullptr : name_of(dtype);
  runtime::tape::note(command);
}

}  // namespace

const Op& op_of(const std::string& name, const std::string& overload) {
  const std::lock_guard<std::mutex> lock(ops_mutex);
  const auto [place, is_new] = ops.try_emplace(name + "." + overload);
  Op& op = place->second;
  if (is_new) {
    op.shown = public_name_of(name);
    op.overload = overload;
    op.is_exempt = moves_data(name, overload) || is_view(name, overload);
    Uses*& uses = uses_by_name[op.shown];
    if (uses == nullptr) uses = new Uses(op.shown);
    op.uses = uses;
  }
  return op;
}

namespace {

bool is_native(const Op& op, const runtime::Device& device) {
  const uint64_t bit = bit_of(device);
  if ((op.known.load(std::memory_order_acquire) & bit) != 0) {
    return (op.native.load(std::memory_order_relaxed) & bit) != 0;
  }
  const bool listed = is_listed(native(device), op.shown, op.overload);
  if (listed) op.native.fetch_or(bit, std::memory_order_relaxed);
  op.known.fetch_or(bit, std::memory_order_release);
  return listed;
}

// The reason: −1 where the op itself is not native, else a dtype. Nothing: it is native.
std::optional<int> reason_of(const Op& op, DtypeSet used, const runtime::Device& device) {
  if (op.is_exempt || (used & device.watched_dtypes) == 0) return std::nullopt;
  if (!is_native(op, device)) return -1;
  const int foreign = foreign_dtype(used, device.watched_dtypes);
  return foreign < 0 ? std::nullopt : std::optional(foreign);
}

}  // namespace

bool falls_back(const Op& op, DtypeSet used, const runtime::Device& device) {
  return reason_of(op, used, device).has_value();
}

void check(const Op& op, DtypeSet used, int index) {
  const runtime::Device& device = devices().device(index);
  if (const std::optional<int> reason = reason_of(op, used, device)) note(op, *reason, used, device);
}

std::optional<std::string> reason_of(const runtime::Chip& chip, const std::string& name,
                                     const std::string& overload, const std::vector<std::string>& dtypes) {
  const Op& op = op_of(name, overload);
  if (op.is_exempt) return std::nullopt;
  const Native native = native_of(chip);
  if (!is_listed(native, op.shown, overload)) return "";
  const int foreign = foreign_dtype(dtypes_of(dtypes), ~native.dtypes);
  return foreign < 0 ? std::nullopt : std::optional<std::string>(name_of(foreign));
}

bool check_op(const Op& op, int index) {
  const runtime::Device& device = devices().device(index);
  if ((device.watched_dtypes & kAnyOp) == 0 || is_native(op, device)) return false;
  check(op, kAnyOp, index);
  return true;
}

void prepare(runtime::Device& device) {
  Native own = native_of(device.chip());
  device.watched_dtypes = (~own.dtypes & ~kAnyOp) | (own.ops.has_value() ? kAnyOp : 0);
  const std::lock_guard<std::mutex> lock(kinds_mutex);
  const auto known = std::find(kinds().begin(), kinds().end(), own);
  device.chip_kind = static_cast<int>(known - kinds().begin());
  if (known == kinds().end()) kinds().push_back(std::move(own));
}

void watch(const runtime::Runtime& all) {
  DtypeSet watched = 0;
  for (int index = 0; index < all.device_count(); ++index) watched |= all.device(index).watched_dtypes;
  detail::watched.store(watched, std::memory_order_release);
}

void set_refuses(bool value) { refuses.store(value); }

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
    for (std::atomic<uint64_t>& is_notified : uses->is_notified)
      is_notified.store(0, std::memory_order_relaxed);
  }
}

void set_notifier(Notifier notifier) { current_notifier = notifier; }

}  // namespace loom::glue::fallback
