#include "distributed/communicator.h"

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include "distributed/command.h"
#include "distributed/issue.h"
#include "distributed/symmetric.h"
#include "distributed/work.h"
#include "runtime/commands.h"
#include "runtime/simulated_clock.h"
#include "torch/core/device.h"
#include "torch/core/python_line.h"
#include "torch/loans/operand.h"

namespace loom::distributed {

namespace {

using glue::device_type;

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Shared>> all;
  std::map<std::string, int> num_made;  // by ranks
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

void abort_all() noexcept {
  end_signals();
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const std::weak_ptr<Shared>& each : registry().all) {
    const std::shared_ptr<Shared> shared = each.lock();
    if (shared != nullptr && shared->num_pending.load() != 0) {
      shared->transport.fail("rank " + std::to_string(shared->transport.rank()) +
                             " has ended with collectives under way");
    }
  }
}

Communicator::Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           c10::intrusive_ptr<GroupOptions> options)
    : Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      shared_(std::make_shared<Shared>(store, rank, size)) {
  shared_->name = options_->backend;
  for (const int64_t item : global_ranks(-1)) group_key_ += std::to_string(item) + ",";
  group_key_ = std::to_string(std::hash<std::string>{}(group_key_));
  if (auto* const parent = dynamic_cast<Communicator*>(options_->split_from.get())) parent->count_split();
  options_->split_from.reset();
  const std::lock_guard<std::mutex> lock(registry().mutex);
  std::erase_if(registry().all, [](const auto& each) { return each.expired(); });
  registry().all.push_back(shared_);
  // Of the same ranks there may be several groups: all of these have made as many.
  group_key_ += "." + std::to_string(registry().num_made[group_key_]++);
}

Communicator::~Communicator() = default;

c10::Stream Communicator::stream(c10::Device device, int peer) {
  const c10::impl::VirtualGuardImpl guard(device_type());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto key = std::make_pair(static_cast<int>(device.index()), peer);
  auto found = streams_.find(key);
  if (found == streams_.end()) {
    // Of the most urgent kind, which programs rarely use: what waits for other ranks has it to itself.
    constexpr int kMostUrgent = -1000;
    found = streams_.emplace(key, guard.getNewStream(device, kMostUrgent).id()).first;
  }
  return c10::Stream(c10::Stream::UNSAFE, device, found->second);
}

// --- one operation ---

Communicator::WorkPtr Communicator::issue(Step&& step, std::chrono::milliseconds timeout, Tensors results,
                                          bool blocks_host) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_coalescing_) {
      coalesced_.push_back(std::move(step));
      for (at::Tensor& result : results) coalesced_results_.push_back(std::move(result));
      return nullptr;
    }
  }
  std::vector<Step> steps;
  const std::string title = step.title;
  steps.push_back(std::move(step));
  return submit(std::move(steps), timeout, std::move(results), blocks_host, title);
}

void Communicator::record_parameters(const Step& step) {
  const Operation& operation = step.task.operation;
  const auto count = [](const Tensors& tensors) {
    int64_t sum = 0;
    for (const at::Tensor& tensor : tensors) sum += tensor.numel();
    return sum;
  };
  const bool is_message = is_message_kind(operation.kind);
  const uint64_t before = (is_message ? message_sequence_ : sequence_).load();
  const auto sequence = std::make_tuple(static_cast<int64_t>(before + 1), is_message);
  const auto group = std::make_tuple(getGroupUid(), getGroupDesc());
  const std::string name = operation.kind == Kind::kAllReduce ? "allreduce" : step.title;
  const std::vector<int64_t> no_sizes;
  const auto dtype = operation.dtype < 0 ? at::kByte : static_cast<at::ScalarType>(operation.dtype);
  const auto& ranks = options_->global_ranks_in_group;
  const int first = ranks.empty() ? 0 : static_cast<int>(ranks.front());
  const int stride = ranks.size() < 2 ? 1 : static_cast<int>(ranks[1] - ranks[0]);
  RECORD_PARAM_COMMS_DATA(sequence, group, step.inputs, step.outputs, getRank(), std::string(name),
                          count(step.inputs), count(step.outputs), dtype, no_sizes, no_sizes, first, stride,
                          getSize());
}

void Communicator::record_flight(Command& command, const std::vector<Step>& steps, std::string_view line) {
  if (recorder::capacity() == 0 || runtime::detail::world.load() != 0) return;
  if (recorded_ == nullptr) {
    static std::atomic<size_t> num_groups{0};
    recorded_ = std::make_shared<const RecordedGroup>(
        RecordedGroup{num_groups++, getGroupUid(), getGroupDesc(), global_ranks(-1)});
  }
  const auto described = [](const Tensors& tensors) {
    std::vector<RecordedTensor> all;
    for (const at::Tensor& tensor : tensors) all.push_back({tensor.sizes().vec(), tensor.scalar_type()});
    return all;
  };
  for (const Step& each : steps) {
    Recorded entry;
    entry.group = recorded_;
    entry.sequence = sequence_.load();
    entry.message_sequence = message_sequence_.load();
    entry.name = options_->backend + ":" + each.title;
    entry.line = line;
    entry.inputs = described(each.inputs);
    entry.outputs = described(each.outputs);
    entry.is_message = is_message_kind(each.task.operation.kind);
    entry.timeout = command.timeout;
    command.records.push_back(recorder::keep(std::move(entry)));
  }
  command.global_rank = static_cast<int>(recorded_->ranks[static_cast<size_t>(getRank())]);
}

void Communicator::startCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_coalescing_ = true;
}

Communicator::WorkPtr Communicator::endCoalescing() {
  std::vector<Step> steps;
  Tensors results;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_coalescing_ = false;
    steps = std::exchange(coalesced_, {});
    results = std::exchange(coalesced_results_, {});
  }
  if (steps.empty()) return nullptr;
  return submit(std::move(steps), c10d::kUnsetTimeout, std::move(results), false, "coalesced");
}

Communicator::WorkPtr Communicator::submit(std::vector<Step>&& steps, std::chrono::milliseconds timeout,
                                           Tensors results, bool blocks_host, const std::string& title) {
  check_issue(steps);
  const c10::Device device = steps.front().device;
  const c10::DeviceGuard device_guard(device);
  const c10::impl::VirtualGuardImpl streams(device_type());
  const bool is_message = steps.size() == 1 && is_message_kind(steps.front().task.operation.kind);
  const c10::Stream current = streams.getStream(device);
  const c10::Stream own = stream(device, is_message ? steps.front().task.operation.root : -1);
  const runtime::StreamRef where{device.index(), own.id()};

  // A row of a profile that ends by itself, as NCCL's: the collective is under way when the call returns.
  at::RecordFunction row(at::RecordScope::USER_SCOPE);
  if (row.isActive()) {
    row._setAsync();
    std::vector<c10::IValue> shown;
    for (const Step& step : steps) {
      for (const at::Tensor& tensor : step.inputs.empty() ? step.outputs : step.inputs)
        shown.emplace_back(tensor);
    }
    record_parameters(steps.front());
    row.before(options_->backend + ":" + title, c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
  }
  const std::string_view line = glue::python_line();
  auto command = std::make_unique<Command>();
  command->shared = shared_;
  command->outcome = std::make_shared<Outcome>();
  const auto [extra_time, own_extra_time] = shared_->extra_time.give();
  command->timeout = (timeout == c10d::kUnsetTimeout ? options_->timeout : timeout) + extra_time;
  command->own_extra_time = own_extra_time;
  // Messages are counted by themselves: not all ranks take part.
  const bool is_for_all = std::any_of(steps.begin(), steps.end(), [](const Step& each) {
    return !is_message_kind(each.task.operation.kind);
  });
  const uint64_t sequence = (is_for_all ? sequence_ : message_sequence_).fetch_add(1) + 1;
  std::vector<runtime::Operand> operands, outputs;
  int64_t nanoseconds = 0;
  uint64_t num_bytes = 0;
  for (Step& step : steps) {
    Operation& operation = step.task.operation;
    operation.sequence = is_message_kind(operation.kind) ? 0 : sequence;
    operation.set_line(line);
    operation.device = devices_of_machine(device.index());
    operation.machine = shared_->machine;
    nanoseconds += price(step);
    count(operation, getSize());
    num_bytes += operation.bytes;
    for (const at::Tensor& input : step.inputs) operands.push_back(glue::operand_of(input, false));
    for (const at::Tensor& output : step.outputs) {
      operands.push_back(glue::operand_of(output, true));
      outputs.push_back(operands.back());
    }
  }
  refuse_nan(steps, current);
  const char* const name = kernel_name(options_->backend, steps.front().task);
  record_flight(*command, steps, line);

  c10::Event ready(device_type(), c10::EventFlag::PYTORCH_DEFAULT);
  ready.record(current);
  ready.block(own);
  nanoseconds += wait_for_simulated(steps, own);
  InUse in_use(own);
  for (Step& each : steps) {
    in_use.add(each.inputs);
    in_use.add(each.outputs);
    for (const auto& [to, from] : each.copies) in_use.add({to});
    command->tasks.push_back(std::move(each.task));
  }
  // Known only now: where the current stream is captured, its wait has the other one captured, too.
  command->is_captured = runtime::is_captured(where);
  command->is_dry = !runtime::get().device(where.device).runs_kernels();
  const Issued issued{command->outcome, sequence, command->timeout,
                      blocks_host || shared_->watchdog.blocks_host, command->is_captured};
  // Before the command is on the time line.
  std::optional<c10::Event> started;
  if (shared_->is_timed) started.emplace(device_type(), kTimed).record(own);
  // Each replay of a graph has a time of its own, as dry runs have, whose ranks meet before.
  const bool is_alone = runtime::detail::world.load() != 0 || issued.is_captured;
  if (!is_alone) command->joint = runtime::simulated::join(where.device, where.id, nanoseconds);
  const bool is_joined = command->joint != nullptr;
  if (!issued.is_captured) shared_->num_pending.fetch_add(1);
  driver::Kernel kernel{name, &Command::run, &Command::release, command.release()};
  {
    const std::lock_guard<std::mutex> lock(submitting_);
    try {
      kernel.in_place = can_run_now(*static_cast<Command*>(kernel.context), where);
    } catch (...) {
      Command::release(kernel.context);
      throw;
    }
    const runtime::simulated::Said said(nanoseconds, is_joined);
    glue::translated([&] { runtime::submit(where, kernel, {nullptr, operands, {}}, outputs); });
  }
  if (std::any_of(steps.begin(), steps.end(), [](const Step& each) { return !each.copies.empty(); })) {
    const c10::StreamGuard on_own(own);
    const at::NoGradGuard no_grad;
    for (const Step& step : steps) {
      for (const auto& [to, from] : step.copies) to.copy_(from, /*non_blocking=*/true);
    }
  }
  auto work = c10::make_intrusive<OwnWork>(getRank(), op_type(steps), own, std::move(results),
                                           std::move(in_use), issued, std::move(started));
  call_hook_after(work);
  return work;
}

int Communicator::device_in_use() {
  // As NCCL's: that of earlier collectives, else by the rank; the current device may be the first on all
  // ranks.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!streams_.empty()) return streams_.begin()->first.first;
  const int rank = options_->global_ranks_in_group.empty()
                       ? getRank()
                       : static_cast<int>(options_->global_ranks_in_group[static_cast<size_t>(getRank())]);
  return options_->backend == "nccl" ? rank % std::max(glue::device_count(), 1) : runtime::current_device();
}

}  // namespace loom::distributed
