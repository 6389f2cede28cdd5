// The group of a communicator: its parts, its time-out, its end.
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "distributed/communicator.h"

namespace loom::distributed {

Communicator::Ptr<c10d::Backend> Communicator::split(const Ptr<c10d::Store>&, const std::vector<int>& ranks,
                                                     const Ptr<c10d::Backend::Options>& given) {
  num_splits_.fetch_add(1);
  const auto found = std::find(ranks.begin(), ranks.end(), getRank());
  if (found == ranks.end()) return nullptr;
  // By its ranks, and how often these have been split off: all of them count alike, whatever else each is in.
  std::string key = "split";
  int count;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count = splits_[ranks]++;
  }
  for (const int rank : ranks) key += "_" + std::to_string(rank);
  key += ":" + std::to_string(count);
  auto options = c10::make_intrusive<GroupOptions>(options_->backend, options_->timeout);
  options->is_high_priority_stream = options_->is_high_priority_stream;
  if (given != nullptr) {
    options->timeout = given->timeout;
    options->group_name = given->group_name;
    options->group_desc = given->group_desc;
  }
  for (const int rank : ranks) {
    options->global_ranks_in_group.push_back(
        options_->global_ranks_in_group.empty() ? static_cast<uint64_t>(rank)
                                                : options_->global_ranks_in_group[static_cast<size_t>(rank)]);
  }
  auto part = c10::make_intrusive<Communicator>(c10::make_intrusive<c10d::PrefixStore>(key, store_),
                                                static_cast<int>(found - ranks.begin()),
                                                static_cast<int>(ranks.size()), options);
  return part;
}

void Communicator::setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

c10d::ErrorType Communicator::getError() {
  if (!shared_->transport.has_failed()) return c10d::ErrorType::SUCCESS;
  return shared_->has_timed_out ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
}

void Communicator::eagerConnectSingleDevice(at::Device) {
  try {
    shared_->transport.connect(Transport::Clock::now() + options_->timeout);
  } catch (const Error& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
}

void Communicator::abort() {
  shared_->transport.fail("the communicator was aborted on rank " + std::to_string(getRank()) + ".");
}

void Communicator::shutdown() {
  is_shut_down_ = true;
  const auto deadline = Transport::Clock::now() + options_->timeout;
  while (shared_->num_pending.load() != 0 && !shared_->transport.has_failed() &&
         Transport::Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace loom::distributed
