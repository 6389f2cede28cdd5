#include "distributed/command.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "distributed/recorder.h"
#include "driver/error.h"

namespace loom::distributed {

namespace {

std::string timeout_text(const Command& command, int rank, std::chrono::milliseconds took) {
  const Task& task = command.tasks.front();
  const Operation& operation = task.operation;
  size_t taken = 0;
  for (const Bytes& bytes : task.takes) taken += bytes.size;
  const size_t item =
      operation.dtype < 0 ? 1 : c10::elementSize(static_cast<c10::ScalarType>(operation.dtype));
  return "[Rank " + std::to_string(rank) +
         "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" +
         std::to_string(operation.sequence) + ", OpType=" + nccl_name_of(operation.kind) +
         ", NumelIn=" + std::to_string(operation.numel) + ", NumelOut=" + std::to_string(taken / item) +
         ", Timeout(ms)=" + std::to_string(command.timeout.count()) + ") ran for " +
         std::to_string(took.count()) + " milliseconds before timing out.";
}

std::atomic<bool> time_outs_end_process{true};

}  // namespace

void set_time_outs_end_process(bool ends) noexcept { time_outs_end_process = ends; }

void Command::run(void* command, driver::Stream) { static_cast<Command*>(command)->run(); }

void Command::release(void* command) noexcept {
  Command* const own = static_cast<Command*>(command);
  // Where it has not run, it waits for no other rank.
  if (own->joint != nullptr) own->joint->begin_at(-1);
  // A stream that has failed runs nothing more: a wait for the work raises why.
  if (!own->has_begun && own->shared->transport.has_failed()) {
    try {
      C10_THROW_ERROR(DistBackendError, own->shared->transport.failure());
    } catch (...) {
      own->outcome->fail(std::current_exception());
    }
  }
  own->shared->num_pending.fetch_sub(1);
  delete own;
}

void Command::run() {
  has_begun = true;
  Transport& transport = shared->transport;
  const auto began = Transport::Clock::now();
  const Rules rules{began + timeout, checks(), shared->name == "nccl"};
  std::string reason;
  try {
    for (const int64_t record : records) recorder::start(record);
    transport.connect(rules.deadline);
    transport.check_failures();
    if (shared->checks_for_nan) {
      for (const Task& task : tasks) {
        const std::string found = nan_found(task, transport.rank());
        if (!found.empty()) throw Error(found);
      }
    }
    const int64_t ready_ns = joint == nullptr ? -1 : joint->ready_ns();
    for (Task& task : tasks) task.operation.ready_ns = ready_ns;
    int64_t latest_ns = -1;
    for (size_t i = 0; i < tasks.size();) {
      size_t end = i;
      while (end < tasks.size() && is_message_kind(tasks[end].operation.kind)) ++end;
      if (end != i) {
        latest_ns = std::max(latest_ns, run_messages(transport, {tasks.data() + i, end - i}, rules));
        i = end;
      } else {
        latest_ns = std::max(latest_ns, run_collective(transport, tasks[i++], rules));
      }
    }
    if (joint != nullptr) joint->begin_at(latest_ns);
    for (const int64_t record : records) recorder::complete(record);
    return;
  } catch (const TimedOut& error) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Transport::Clock::now() - began);
    reason = timeout_text(*this, transport.rank(), took) + " " + error.what() + ": " +
             tasks.front().operation.text();
    shared->has_timed_out = true;
    if (!checks()) dump(global_rank);
    if (!checks() && time_outs_end_process) {
      std::fprintf(stderr, "%s\nTo avoid data inconsistency, we are taking the entire process down.\n",
                   reason.c_str());
      std::fflush(stderr);
      std::abort();
    }
  } catch (const std::exception& error) {
    reason = error.what();
  }
  transport.fail(reason);
  // Who waits for the work gets it, and who waits for the stream.
  try {
    C10_THROW_ERROR(DistBackendError, reason);
  } catch (...) {
    outcome->fail(std::current_exception());
    throw;
  }
}

}  // namespace loom::distributed
