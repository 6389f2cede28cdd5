#include "distributed/command.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "distributed/nan_check.h"
#include "distributed/recorder.h"
#include "driver/error.h"
#include "torch/dispatch/device_assert.h"
#include "util/spin.h"

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

// An exception of this type, with this reason.
std::exception_ptr backend_error(const std::string& reason) {
  try {
    C10_THROW_ERROR(DistBackendError, reason);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void Command::run(void* command, driver::Stream) { static_cast<Command*>(command)->run(); }

void Command::release(void* command) noexcept {
  Command* const own = static_cast<Command*>(command);
  // Where it has not run, it waits for no other rank.
  if (own->joint != nullptr) own->joint->begin_at(-1);
  // A stream that has failed runs nothing more: a wait for the work raises why.
  if (!own->has_begun && !own->is_captured && !own->is_dry) {
    if (own->shown.has_value()) {
      own->shared->transport.fail(own->tasks.front().operation.text() +
                                  " was not run: its stream had failed");
    }
    const std::string reason = own->shared->transport.failure();
    own->outcome->fail(
        backend_error(!reason.empty() ? reason
                                      : own->tasks.front().operation.text() +
                                            " was not run: its stream had failed before. torch's "
                                            "synchronize() of the device raises why"),
        c10d::WorkResult::COMM_ERROR);
  }
  if (!own->is_captured) own->shared->num_pending.fetch_sub(1);
  delete own;
}

void Command::run() {
  has_begun = true;
  // A graph's command is pending while it is replayed.
  if (is_captured) shared->num_pending.fetch_add(1);
  const auto began = Transport::Clock::now();
  std::string reason;
  auto result = c10d::WorkResult::COMM_ERROR;
  try {
    move_data();
  } catch (const TimedOut& error) {
    reason = timed_out(
        error.what(), std::chrono::duration_cast<std::chrono::milliseconds>(Transport::Clock::now() - began));
    result = c10d::WorkResult::TIMEOUT;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  shared->extra_time.take_back(std::exchange(own_extra_time, {}));
  if (is_captured) shared->num_pending.fetch_sub(1);
  if (reason.empty()) return outcome->succeed();
  shared->transport.fail(reason);
  // Who waits for the work gets it, and who waits for the stream.
  const std::exception_ptr failure = backend_error(reason);
  outcome->fail(failure, result);
  std::rethrow_exception(failure);
}

void Command::meet_others() {
  Transport& transport = shared->transport;
  if (!transport.known_failure().empty()) return;  // raises where the work is waited for
  const Kind kind = tasks.front().operation.kind;
  if (is_message_kind(kind)) {
    // Two ranks that each send and receive at once would wait for each other.
    const bool is_one_way = std::all_of(tasks.begin(), tasks.end(), [&](const Task& task) {
      return task.operation.kind == kind && size_of_message(task) <= Transport::kMostAtOnce;
    });
    has_met = is_one_way && driver::spin_until([&] { return can_move_now(transport, tasks); });
    return;
  }
  if (tasks.size() != 1) return;
  say_when_ready();
  shown = show_first(transport, tasks[0]);
  has_met = shown.has_value() && driver::spin_until([&] { return can_end_now(transport, *shown); });
}

void Command::say_when_ready() {
  const int64_t ready_ns = joint == nullptr ? -1 : joint->ready_ns();
  for (Task& task : tasks) task.operation.ready_ns = ready_ns;
}

void Command::move_data() {
  // What it would send is undefined then.
  glue::check_device_assert();
  Transport& transport = shared->transport;
  const bool is_nccl = shared->name == "nccl";
  const Rules rules{Transport::Clock::now() + timeout, shared->watchdog.checks, is_nccl};
  // Without times NCCL's recorder does not know when an operation began.
  if (shared->is_timed) {
    for (const int64_t record : records) recorder::start(record);
  }
  // The first that is for all: messages have no number of the group's.
  const auto traced = std::find_if(tasks.begin(), tasks.end(),
                                   [](const Task& each) { return !is_message_kind(each.operation.kind); });
  const bool is_traced = shared->desync != nullptr && traced != tasks.end();
  if (is_traced) shared->desync->begin(traced->operation);
  transport.connect(rules.deadline, is_nccl ? tasks.front().operation.device : -1);
  // A rank that fails when it has done its part is no matter of this command's.
  if (!has_met) transport.check_failures();
  // Other commands were checked in the call.
  if (shared->checks_for_nan && is_captured) {
    for (const Task& task : tasks) {
      const std::string found = nan_found(task, transport.rank());
      if (!found.empty()) throw Error(found);
    }
  }
  if (!shown.has_value()) say_when_ready();
  int64_t latest_ns = -1;
  for (size_t i = 0; i < tasks.size();) {
    size_t end = i;
    while (end < tasks.size() && is_message_kind(tasks[end].operation.kind)) ++end;
    if (end != i) {
      latest_ns = std::max(latest_ns, run_messages(transport, {tasks.data() + i, end - i}, rules));
      i = end;
    } else {
      latest_ns = std::max(latest_ns, run_collective(transport, tasks[i++], rules, shown));
    }
  }
  if (joint != nullptr) joint->begin_at(latest_ns);
  for (const int64_t record : records) recorder::complete(record);
  if (is_traced) shared->desync->end(traced->operation);
}

std::string Command::timed_out(const std::string& why, std::chrono::milliseconds took) {
  std::string reason =
      timeout_text(*this, shared->transport.rank(), took) + " " + why + ": " + tasks.front().operation.text();
  shared->has_timed_out = true;
  if (shared->desync != nullptr) reason += shared->desync->report();
  if (shared->watchdog.checks) return reason;
  dump(global_rank);
  if (shared->watchdog.ends_process) {
    std::fprintf(stderr, "%s\nTo avoid data inconsistency, we are taking the entire process down.\n",
                 reason.c_str());
    std::fflush(stderr);
    std::abort();
  }
  return reason;
}

}  // namespace loom::distributed
