// What commands cost on the simulated clock, and what of it is still to be asked: costs are asked for when a
// time is read. But for ask() the caller holds the clock's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/cost_cache.h"
#include "runtime/kept_record.h"
#include "runtime/simulated_clock.h"
#include "runtime/time_lines.h"

namespace loom::runtime::simulated {

// A cost that is not estimated yet, and what the estimator needs for it.
struct Unknown {
  CallKey key{};
  uint32_t chip = 0;
  bool is_move = false;
  Move move = Move::kOnDevice;
  size_t bytes = 0;
  std::string name;
  KeptRecord record;
  std::atomic<int64_t> nanoseconds{-1};
  int64_t number = kNoCost;  // calls that are not described name it by this, see last_cost()
};
using Unknowns = std::vector<std::shared_ptr<Unknown>>;

class Costs {
 public:
  explicit Costs(const Estimator& estimator) : estimator_(estimator), known_(estimator.attributes) {}

  const CostCache& known() const noexcept { return known_; }
  // Writes a step's cost into it, or at least what will be asked for it. False: neither is there.
  bool find(Step& step, const CallKey& key) const;
  // Puts off what find() has not found.
  void put_off(Step& step, std::shared_ptr<Unknown> unknown);
  // The same for a number of last_cost().
  void find_number(Step& step, int64_t number) const;

  size_t num_unknown() const noexcept { return unknown_.size(); }
  const Unknowns& unknown() const noexcept { return unknown_; }
  // Needs the interpreter's lock, and throws what the estimator throws.
  void ask(const Unknowns& unknown) const;
  void learn(const Unknowns& asked);
  // All steps that waited for them are on the time lines.
  void forget_unknown();

 private:
  struct Numbered {
    Unknown* unknown;         // while it is not estimated
    int64_t nanoseconds = 0;  // afterwards
  };

  const Estimator estimator_;
  CostCache known_;
  Unknowns unknown_;
  struct KeyHash {
    size_t operator()(const CallKey& key) const noexcept { return key.first; }
  };
  std::unordered_map<CallKey, Unknown*, KeyHash> places_;
  std::deque<Numbered> numbered_;  // grows only
};

}  // namespace loom::runtime::simulated
