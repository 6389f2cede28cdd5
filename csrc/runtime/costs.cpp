#include "runtime/costs.h"

#include <algorithm>
#include <utility>

namespace loom::runtime::simulated {

namespace {

// Of kernels, 16 MB; afterwards a call is described until its cost is known.
constexpr size_t kMaxNumbered = 1 << 20;

int64_t number_of(size_t place) { return kNoCost - 1 - static_cast<int64_t>(place); }
size_t place_of_number(int64_t number) { return static_cast<size_t>(kNoCost - 1 - number); }

}  // namespace

bool Costs::find(Step& step, const CallKey& key) const {
  step.nanoseconds = known_.find(key);
  if (step.nanoseconds >= 0) return true;
  const auto found = places_.find(key);
  step.unknown = found == places_.end() ? nullptr : found->second;
  return step.unknown != nullptr;
}

void Costs::put_off(Step& step, std::shared_ptr<Unknown> unknown) {
  step.unknown = unknown.get();
  places_.emplace(unknown->key, unknown.get());
  if (!unknown->is_move && numbered_.size() < kMaxNumbered) {
    unknown->number = number_of(numbered_.size());
    numbered_.push_back({unknown.get()});
  }
  unknown_.push_back(std::move(unknown));
}

void Costs::find_number(Step& step, int64_t number) const {
  const Numbered found = number >= 0 ? Numbered{nullptr, number} : numbered_[place_of_number(number)];
  step.unknown = found.unknown;
  step.nanoseconds = found.nanoseconds;
}

void Costs::ask(const Unknowns& unknown) const {
  for (const auto& each : unknown) {
    if (each->nanoseconds.load() >= 0) continue;
    const int64_t found = each->is_move ? estimator_.move_ns(each->chip, each->move, each->bytes)
                                        : estimator_.kernel_ns(each->chip, each->name.c_str(),
                                                               each->record.record(), each->record.outputs());
    each->nanoseconds = std::max<int64_t>(found, 0);
  }
}

void Costs::learn(const Unknowns& asked) {
  for (const auto& item : asked) known_.insert(item->key, item->nanoseconds.load());
}

void Costs::forget_unknown() {
  for (const auto& each : unknown_) {
    if (each->number != kNoCost)
      numbered_[place_of_number(each->number)] = {nullptr, each->nanoseconds.load()};
  }
  unknown_.clear();
  places_.clear();
}

}  // namespace loom::runtime::simulated
