#include "distributed/desync.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "distributed/transport/rendezvous.h"

namespace loom::distributed {

namespace {

struct Traced {
  uint64_t sequence = 0;
  std::string name;
};

std::string trace_key(int rank, bool begins) {
  return "NCCL_" + std::to_string(rank) + (begins ? "_trace_start" : "_trace_end");
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + text + "]";
}

}  // namespace

DesyncTrace::DesyncTrace(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks)
    : store_(own_connection(store)), rank_(rank), num_ranks_(num_ranks) {}

void DesyncTrace::write(const Operation& operation, bool begins) {
  const std::string text = std::to_string(operation.sequence) + " " + nccl_name_of(operation.kind);
  store_->set(trace_key(rank_, begins), std::vector<uint8_t>(text.begin(), text.end()));
}

std::string DesyncTrace::report() {
  const auto read = [&](int rank, bool begins) -> std::optional<Traced> {
    const std::string key = trace_key(rank, begins);
    if (!store_->check({key})) return std::nullopt;
    const std::vector<uint8_t> told = store_->get(key);
    std::istringstream text(std::string(told.begin(), told.end()));
    Traced found;
    text >> found.sequence >> found.name;
    return found;
  };
  try {
    using Ranks = std::vector<int>;
    Ranks missing;
    // By number: the ranks that are in the collective, and those that have ended it, each by its name.
    std::map<uint64_t, std::array<std::map<std::string, Ranks>, 2>> states;
    std::string text;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const std::optional<Traced> begun = read(rank, true), ended = read(rank, false);
      if (!begun.has_value()) {
        missing.push_back(rank);
        continue;
      }
      const bool has_ended = ended.has_value() && ended->sequence == begun->sequence;
      states[begun->sequence][has_ended ? 1 : 0][begun->name].push_back(rank);
      if (rank == rank_) {
        text = "\n\t - [" + std::to_string(rank_) + "] Timeout at collective: " + begun->name + ", #" +
               std::to_string(begun->sequence);
      }
    }
    if (!missing.empty()) {
      return text + "\n\t - To our best knowledge, ranks " + joined(missing) +
             " are the lagging ranks that caused this timeout. They never joined any collectives";
    }
    const auto all_of = [](const std::map<std::string, Ranks>& by_name) {
      Ranks all;
      for (const auto& [name, ranks] : by_name) all.insert(all.end(), ranks.begin(), ranks.end());
      std::sort(all.begin(), all.end());
      return all;
    };
    const auto& [first, lagging] = *states.begin();
    text += "\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:";
    if (const Ranks inside = all_of(lagging[0]); !inside.empty()) {
      text += "\n\t   - " + joined(inside) + " joined but didn't finish collective #" +
              std::to_string(first) + " (count from 1)";
    }
    if (const Ranks behind = all_of(lagging[1]); !behind.empty()) {
      text += "\n\t     " + joined(behind) + " finished collective #" + std::to_string(first) +
              ", but didn't join collective #" + std::to_string(first + 1) + " (count from 1)";
    }
    text += "\n\t - Snapshot of ranks' latest states:";
    for (const auto& [sequence, by_state] : states) {
      for (const int state : {0, 1}) {
        if (by_state[static_cast<size_t>(state)].empty()) continue;
        const std::string what = state == 0 ? "started" : "finished";
        text += "\n\t   #" + std::to_string(sequence) + " " + what + " ranks:";
        for (const auto& [name, ranks] : by_state[static_cast<size_t>(state)]) {
          text += "\n\t     " + joined(ranks) + " " + what + " " + name;
        }
      }
    }
    return text;
  } catch (const std::exception& error) {
    return std::string("\n\t - Failed to retrieve TORCH_NCCL_DESYNC_DEBUG report: ") + error.what();
  }
}

}  // namespace loom::distributed
