// The group of a communicator: its parts, its time-out, its end.
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "distributed/communicator.h"
#include "distributed/issue.h"
#include "distributed/work.h"

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

void Communicator::eagerConnectSingleDevice(at::Device device) {
  connect(options_->backend == "nccl" ? devices_of_machine(device.index()) : -1);
}

void Communicator::registerOnCompletionHook(Hook&& hook) {
  if (hook_ != nullptr) {
    C10_THROW_ERROR(DistBackendError, "ProcessGroupNCCL OnCompletion hook already registered");
  }
  TORCH_CHECK_VALUE(
      shared_->is_timed,
      "ProcessGroupNCCL OnCompletion hook requires recording start and end events which require "
      "setting TORCH_NCCL_ENABLE_TIMING environment variable, before the group is made");
  hook_ = std::make_shared<const Hook>(std::move(hook));
}

void Communicator::call_hook_after(const Ptr<OwnWork>& work) {
  if (hook_ == nullptr || work->issued().is_captured) return;
  shared_->num_hook_calls.fetch_add(1);
  // Without the work, which keeps tensors.
  const auto call = [hook = hook_, shared = shared_, moments = work->moments(), kind = work->retrieveOpType(),
                     sequence = work->getSequencenumber()](c10d::WorkResult result) {
    try {
      if (result == c10d::WorkResult::SUCCESS) {
        moments->ended.synchronize();
        const std::chrono::duration<float, std::milli> took(moments->started->elapsedTime(moments->ended));
        const auto end = std::chrono::steady_clock::now();
        const auto start = end - std::chrono::duration_cast<std::chrono::nanoseconds>(took);
        (*hook)(std::make_shared<c10d::WorkInfo>(kind, sequence, start, end, took));
      }
    } catch (const std::exception& error) {
      shared->transport.fail("Caught exception on rank " + std::to_string(shared->transport.rank()) +
                             " while running onCompletion hook for ProcessGroupNCCL: " + error.what() +
                             ". Aborting all communicators.");
    }
    shared->num_hook_calls.fetch_sub(1);
  };
  work->when_ended(call);
}

bool Communicator::wait_until_idle() {
  const auto deadline = Transport::Clock::now() + options_->timeout;
  while (shared_->num_pending.load() != 0 || shared_->num_hook_calls.load() != 0) {
    if (Transport::Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void Communicator::waitForPendingWorks() {
  const bool is_idle = wait_until_idle();
  if (shared_->transport.has_failed()) C10_THROW_ERROR(DistBackendError, shared_->transport.failure());
  if (!is_idle) {
    C10_THROW_ERROR(DistBackendError, c10::str("_wait_for_pending_works(): works or their hooks are still "
                                               "under way after the group's ",
                                               options_->timeout.count(), " ms"));
  }
}

void Communicator::abort() {
  shared_->transport.fail("the communicator was aborted on rank " + std::to_string(getRank()) + ".");
}

void Communicator::shutdown() {
  is_shut_down_ = true;
  wait_until_idle();
}

}  // namespace loom::distributed
