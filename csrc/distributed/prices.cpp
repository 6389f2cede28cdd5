#include "distributed/prices.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace loom::distributed {

namespace {

std::atomic<const Prices*> the_prices{nullptr};

// Leaked, as threads of streams may outlive static objects.
struct Meeting {
  std::mutex mutex;
  Meet meet;
  Ranks ranks;
};
Meeting& meeting() {
  static auto* const instance = new Meeting;
  return *instance;
}

struct Counts {
  std::mutex mutex;
  std::map<std::pair<Kind, int>, Traffic> all;
};
Counts& counts() {
  static auto* const instance = new Counts;
  return *instance;
}

}  // namespace

void set_prices(const Prices& prices) noexcept { the_prices = new Prices(prices); }

uint64_t bytes_of_price(const Operation& operation, int num_ranks) noexcept {
  const auto n = static_cast<uint64_t>(num_ranks);
  switch (operation.kind) {
    case Kind::kAllGather:
    case Kind::kGather:
      return operation.bytes * n;
    case Kind::kBroadcast:
    case Kind::kScatter: {
      // Ranks that give nothing take as long as the root.
      const auto dtype = static_cast<c10::ScalarType>(operation.dtype);
      const uint64_t taken = static_cast<uint64_t>(operation.numel) * c10::elementSize(dtype);
      return operation.kind == Kind::kScatter ? taken * n : taken;
    }
    default:
      return operation.bytes;
  }
}

int layout_of(const Ranks& ranks) {
  const Prices* const prices = the_prices.load();
  return prices == nullptr ? 0 : prices->layout_of(ranks);
}

int64_t cost_of(int device, const Operation& operation, int num_ranks, int layout) {
  const Prices* const prices = the_prices.load();
  if (prices == nullptr) return 0;
  return prices->cost_of(device, name_of(operation.kind), bytes_of_price(operation, num_ranks), layout);
}

void set_meeting(Meet meet, Ranks ranks) {
  const std::lock_guard<std::mutex> lock(meeting().mutex);
  meeting().meet = std::move(meet);
  meeting().ranks = std::move(ranks);
}

Ranks simulated_among(const Ranks& ranks) {
  const std::lock_guard<std::mutex> lock(meeting().mutex);
  Ranks found;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found), [](int64_t rank) {
    return std::binary_search(meeting().ranks.begin(), meeting().ranks.end(), rank);
  });
  return found;
}

int64_t meet(const std::string& key, const Ranks& members, const char* name, int64_t ready_ns) {
  Meet ask;
  {
    const std::lock_guard<std::mutex> lock(meeting().mutex);
    ask = meeting().meet;
  }
  return ask == nullptr ? ready_ns : std::max(ask(key, members, name, ready_ns), ready_ns);
}

void count(const Operation& operation, int num_ranks) {
  const std::lock_guard<std::mutex> lock(counts().mutex);
  Traffic& entry = counts().all[{operation.kind, num_ranks}];
  entry.kind = operation.kind;
  entry.num_ranks = num_ranks;
  ++entry.calls;
  entry.bytes += operation.bytes;
}

std::vector<Traffic> traffic() {
  const std::lock_guard<std::mutex> lock(counts().mutex);
  std::vector<Traffic> all;
  for (const auto& [key, entry] : counts().all) all.push_back(entry);
  return all;
}

}  // namespace loom::distributed
