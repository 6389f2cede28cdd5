// What is refused in the call, before a command is submitted.
#include <c10/util/Exception.h>

#include <algorithm>

#include "distributed/command.h"
#include "distributed/communicator.h"
#include "distributed/issue.h"
#include "distributed/nan_check.h"
#include "runtime/blocking.h"
#include "runtime/commands.h"
#include "runtime/runtime.h"
#include "torch/dispatch/device_assert.h"

namespace loom::distributed {

void Communicator::check_issue(const std::vector<Step>& steps) {
  const c10::Device device = steps.front().device;
  for (const Step& step : steps) {
    TORCH_CHECK_VALUE(step.device == device,
                      "collectives that are coalesced need tensors of one device, got ", device, " and ",
                      step.device);
  }
  if (bound_device_id_.value_or(device) != device) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("Attempt to perform collective on tensor not on device passed to "
                             "init_process_group: the tensor is on ",
                             device, ", the group is for ", *bound_device_id_));
  }
  if (runtime::get().device(device.index()).runs_kernels()) glue::check_device_assert();
  if (shared_->transport.has_failed()) {
    C10_THROW_ERROR(DistBackendError, shared_->transport.failure());
  }
  if (is_shut_down_) {
    C10_THROW_ERROR(DistBackendError, c10::str("the communicator was shut down on rank ", getRank(),
                                               ". Make a new group, init_process_group or new_group."));
  }
  // As under NCCL, which makes its communicator in the first call. One for a pair of ranks is another one.
  const bool is_for_all = std::any_of(steps.begin(), steps.end(), [](const Step& each) {
    return !is_message_kind(each.task.operation.kind);
  });
  if (options_->backend == "nccl" && is_for_all && runtime::detail::world.load() == 0) {
    connect(devices_of_machine(device.index()));
  }
}

void Communicator::connect(int device) {
  if (is_connected()) return;
  try {
    runtime::call_blocking(
        [&] { shared_->transport.connect(Transport::Clock::now() + options_->timeout, device); });
  } catch (const Error& error) {
    shared_->transport.fail(error.what());
    C10_THROW_ERROR(DistBackendError, error.what());
  }
}

bool Communicator::can_run_now(Command& command, runtime::StreamRef where) {
  // Where work is delayed and reordered, collectives are, too. Extra time is also for the works of the next
  // calls.
  const bool is_allowed = command.own_extra_time.count() == 0 && !command.is_captured && !command.is_dry &&
                          shared_->desync == nullptr && runtime::get().config().launch == "auto" &&
                          is_connected() && shared_->transport.is_local();
  if (!is_allowed) return false;
  runtime::Device& device = runtime::get().device(where.device);
  const driver::Stream stream = device.stream(where.id);
  if (!runtime::untold::query_stream(device.driver(), stream)) return false;
  const auto run = [](void* context, driver::Stream) { static_cast<Command*>(context)->meet_others(); };
  glue::translated([&] {
    runtime::untold::submit(device.driver(), stream, {"collective", run, nullptr, &command, true});
  });
  return command.has_met;
}

void Communicator::refuse_nan(const std::vector<Step>& steps, c10::Stream current) {
  if (!shared_->checks_for_nan || runtime::detail::world.load() != 0) return;
  // What a graph keeps is checked in each replay.
  if (runtime::is_captured({current.device_index(), current.id()})) return;
  current.synchronize();
  for (const Step& step : steps) {
    const std::string found = nan_found(step.task, getRank());
    if (found.empty()) continue;
    shared_->transport.fail(found);
    C10_THROW_ERROR(DistBackendError, found);
  }
}

}  // namespace loom::distributed
