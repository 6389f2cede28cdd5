// What operations take of simulated time: by the cost model, which knows where the ranks of a group stand,
// and, where several ranks of a cluster are simulated, by when the others begin.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distributed/operation.h"

namespace loom::distributed {

using Ranks = std::vector<int64_t>;  // of the default group

// Both are asked once for each question: any thread, any lock.
struct Prices {
  // The number of a group's layout: groups that are alike in the cluster may share it.
  int (*layout_of)(const Ranks& ranks) = nullptr;
  // Nanoseconds of an operation; `bytes`: see bytes_of_price().
  int64_t (*cost_of)(int device, const char* name, uint64_t bytes, int layout) = nullptr;
};
void set_prices(const Prices& prices) noexcept;

// Of the whole where ranks give parts of it.
uint64_t bytes_of_price(const Operation& operation, int num_ranks) noexcept;
int layout_of(const Ranks& ranks);
int64_t cost_of(int device, const Operation& operation, int num_ranks, int layout);

// Where ranks of a simulated cluster learn when others begin. `key` names the operation alike on all of them,
// `members` are those that are simulated. Returns when it begins, at least `ready_ns`.
using Meet =
    std::function<int64_t(const std::string& key, const Ranks& members, const char* name, int64_t ready_ns)>;
// `ranks`: that are simulated, in order; empty: none is, and none is asked.
void set_meeting(Meet meet, Ranks ranks);
// Those of `ranks` that are simulated.
Ranks simulated_among(const Ranks& ranks);
int64_t meet(const std::string& key, const Ranks& members, const char* name, int64_t ready_ns);

// How many operations of a kind groups of a size have issued, and the bytes that this rank gave, or took
// where it receives.
struct Traffic {
  Kind kind;
  int num_ranks;
  int64_t calls = 0;
  uint64_t bytes = 0;
};
void count(const Operation& operation, int num_ranks);
std::vector<Traffic> traffic();

}  // namespace loom::distributed
