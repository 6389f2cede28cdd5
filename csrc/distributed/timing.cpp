// What a communicator's operations take of simulated time, and for whom they wait there.
#include <algorithm>

#include "distributed/command.h"
#include "distributed/communicator.h"
#include "runtime/runtime.h"
#include "runtime/simulated_clock.h"

namespace loom::distributed {

Ranks Communicator::global_ranks(int peer) const {
  const auto& known = options_->global_ranks_in_group;
  const auto global = [&](int rank) {
    return known.empty() ? rank : static_cast<int64_t>(known[static_cast<size_t>(rank)]);
  };
  if (peer >= 0) return {global(getRank()), global(peer)};
  Ranks ranks(static_cast<size_t>(getSize()));
  for (int rank = 0; rank < getSize(); ++rank) ranks[static_cast<size_t>(rank)] = global(rank);
  return ranks;
}

int64_t Communicator::price(const Step& step) {
  const Operation& operation = step.task.operation;
  const int peer = is_message_kind(operation.kind) ? operation.root : -1;
  int layout;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = layouts_.find(peer);
    layout = found == layouts_.end() ? -1 : found->second;
  }
  if (layout < 0) {
    layout = layout_of(global_ranks(peer));
    const std::lock_guard<std::mutex> lock(mutex_);
    layouts_[peer] = layout;
  }
  return cost_of(step.device.index(), operation, peer < 0 ? getSize() : 2, layout);
}

int64_t Communicator::wait_for_simulated(const std::vector<Step>& steps, c10::Stream own) {
  if (runtime::detail::world.load() == 0) return 0;
  if (!simulated_.has_value()) simulated_ = simulated_among(global_ranks(-1));
  if (simulated_->size() < 2) return 0;
  const int64_t ready_ns = runtime::simulated::stream_ns(own.device_index(), own.id());
  int64_t begins_ns = ready_ns;
  const auto meet_at = [&](const Step& step, int from, int to, const Ranks& members) {
    const std::string key = group_key_ + ":" + std::to_string(from) + ">" + std::to_string(to) + "#" +
                            std::to_string(met_[{from, to}]++);
    const int64_t met_ns = meet(key, members, name_of(step.task.operation.kind), ready_ns);
    begins_ns = std::max(begins_ns, met_ns);
  };
  // What is sent in a batch is said before anything is waited for: the others do the same.
  for (const Kind now : {Kind::kSend, Kind::kRecv}) {
    for (const Step& step : steps) {
      const Operation& operation = step.task.operation;
      if (operation.kind != now) continue;
      const Ranks pair = simulated_among(global_ranks(operation.root));
      if (pair.size() < 2) continue;
      const bool is_sent = now == Kind::kSend;
      meet_at(step, is_sent ? getRank() : operation.root, is_sent ? operation.root : getRank(), pair);
    }
  }
  const auto is_collective = [](const Step& step) { return !is_message_kind(step.task.operation.kind); };
  const auto first = std::find_if(steps.begin(), steps.end(), is_collective);
  if (first != steps.end()) meet_at(*first, -1, -1, *simulated_);
  return begins_ns - ready_ns;
}

}  // namespace loom::distributed
