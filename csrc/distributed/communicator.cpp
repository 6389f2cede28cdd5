#include "distributed/communicator.h"

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "distributed/command.h"
#include "distributed/issue.h"
#include "distributed/reduction.h"
#include "distributed/work.h"
#include "runtime/commands.h"
#include "runtime/simulated_clock.h"
#include "torch/core/device.h"
#include "torch/core/python_line.h"
#include "torch/loans/operand.h"

namespace loom::distributed {

namespace {

using glue::device_type;

std::atomic<bool> are_checked{true};

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Shared>> all;
  std::map<std::string, int> num_made;  // by ranks
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  // A thread of a stream reads it while the program may be waiting for something else from the store.
  try {
    return store->clone();
  } catch (const std::exception&) {
    return store;  // of a kind that has no connections
  }
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  using Type = c10d::ReduceOp::RedOpType;
  switch (op.op_) {
    case Type::SUM:
      return Reduction::kSum;
    case Type::AVG:
      return Reduction::kAverage;
    case Type::PRODUCT:
      return Reduction::kProduct;
    case Type::MIN:
      return Reduction::kMin;
    case Type::MAX:
      return Reduction::kMax;
    case Type::BAND:
      return Reduction::kAnd;
    case Type::BOR:
      return Reduction::kOr;
    case Type::BXOR:
      return Reduction::kXor;
    case Type::PREMUL_SUM:
      return Reduction::kScaledSum;
    default:
      C10_THROW_ERROR(ValueError, "Unhandled ReduceOp");
  }
}

double factor_of(const c10d::ReduceOp& op) {
  const auto* const supplement = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble()
                                             : supplement->double_factor;
}

// A tensor's part that another rank has, in elements of the first dimension's slices.
std::vector<Bytes> split_bytes(const Bytes& whole, size_t parts) {
  std::vector<Bytes> all(parts);
  const size_t size = whole.size / parts;
  for (size_t i = 0; i < parts; ++i) all[i] = {whole.data + i * size, size};
  return all;
}

}  // namespace

void set_checks(bool checks) noexcept { are_checked = checks; }
bool checks() noexcept { return are_checked.load(std::memory_order_relaxed); }

void abort_all() noexcept {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const std::weak_ptr<Shared>& one : registry().all) {
    const std::shared_ptr<Shared> shared = one.lock();
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
      shared_(std::make_shared<Shared>(own_connection(store), rank, size)) {
  shared_->name = options_->backend;
  for (const int64_t one : global_ranks(-1)) group_key_ += std::to_string(one) + ",";
  group_key_ = std::to_string(std::hash<std::string>{}(group_key_));
  if (auto* const parent = dynamic_cast<Communicator*>(options_->split_from.get())) parent->count_split();
  options_->split_from.reset();
  const std::lock_guard<std::mutex> lock(registry().mutex);
  std::erase_if(registry().all, [](const auto& one) { return one.expired(); });
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

Step Communicator::step(Kind kind, const at::Tensor& described) {
  Step step;
  step.device = described.device();
  step.task.dtype = described.scalar_type();
  Operation& operation = step.task.operation;
  operation.kind = kind;
  operation.dtype = static_cast<int8_t>(described.scalar_type());
  operation.numel = described.numel();
  operation.set_sizes(described.sizes());
  return step;
}

void Communicator::set_reduction(Step& step, const c10d::ReduceOp& op) {
  step.task.operation.reduction = reduction_of(op);
  glue::translated([&] { check_reduction(step.task.operation.reduction, step.task.dtype); });
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) step.task.factor = factor_of(op);
}

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
    for (const at::Tensor& one : tensors) all.push_back({one.sizes().vec(), one.scalar_type()});
    return all;
  };
  for (const Step& one : steps) {
    Recorded entry;
    entry.group = recorded_;
    entry.sequence = sequence_.load();
    entry.message_sequence = message_sequence_.load();
    entry.name = options_->backend + ":" + one.title;
    entry.line = line;
    entry.inputs = described(one.inputs);
    entry.outputs = described(one.outputs);
    entry.is_message = is_message_kind(one.task.operation.kind);
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
  const c10::Device device = steps.front().device;
  for (const Step& one : steps) {
    TORCH_CHECK_VALUE(one.device == device, "collectives that are coalesced need tensors of one device, got ",
                      device, " and ", one.device);
  }
  if (shared_->transport.has_failed()) {
    C10_THROW_ERROR(DistBackendError, shared_->transport.failure());
  }
  const c10::DeviceGuard device_guard(device);
  const c10::impl::VirtualGuardImpl streams(device_type());
  const bool is_message = steps.size() == 1 && is_message_kind(steps.front().task.operation.kind);
  const c10::Stream current = streams.getStream(device);
  const c10::Stream own = stream(device, is_message ? steps.front().task.operation.root : -1);

  // A row of a profile that ends by itself, as NCCL's: the collective is under way when the call returns.
  at::RecordFunction row(at::RecordScope::USER_SCOPE);
  if (row.isActive()) {
    row._setAsync();
    std::vector<c10::IValue> shown;
    for (const Step& one : steps) {
      for (const at::Tensor& tensor : one.inputs.empty() ? one.outputs : one.inputs)
        shown.emplace_back(tensor);
    }
    record_parameters(steps.front());
    row.before(options_->backend + ":" + title, c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
  }
  const std::string_view line = glue::python_line();
  auto command = std::make_unique<Command>();
  command->shared = shared_;
  command->outcome = std::make_shared<Outcome>();
  command->timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  // Messages are counted by themselves: not all ranks take part.
  const bool is_for_all = std::any_of(
      steps.begin(), steps.end(), [](const Step& one) { return !is_message_kind(one.task.operation.kind); });
  const uint64_t sequence = (is_for_all ? sequence_ : message_sequence_).fetch_add(1) + 1;
  std::vector<runtime::Operand> operands, outputs;
  int64_t nanoseconds = 0;
  uint64_t num_bytes = 0;
  for (Step& one : steps) {
    Operation& operation = one.task.operation;
    operation.sequence = is_message_kind(operation.kind) ? 0 : sequence;
    operation.set_line(line);
    operation.device = devices_of_machine(device.index());
    operation.machine = shared_->machine;
    nanoseconds += price(one);
    count(operation, getSize());
    num_bytes += operation.bytes;
    for (const at::Tensor& input : one.inputs) operands.push_back(glue::operand_of(input, false));
    for (const at::Tensor& output : one.outputs) {
      operands.push_back(glue::operand_of(output, true));
      outputs.push_back(operands.back());
    }
  }
  const char* const name = kernel_name(options_->backend, steps.front().task);
  record_flight(*command, steps, line);

  c10::Event ready(device_type(), c10::EventFlag::PYTORCH_DEFAULT);
  ready.record(current);
  ready.block(own);
  nanoseconds += wait_for_simulated(steps, own);
  for (Step& one : steps) {
    for (const Tensors* const list : {&one.inputs, &one.outputs}) {
      for (const at::Tensor& tensor : *list) {
        if (tensor.numel() != 0) streams.recordDataPtrOnStream(tensor.storage().data_ptr(), own);
      }
    }
    command->tasks.push_back(std::move(one.task));
  }
  const auto outcome = command->outcome;
  shared_->num_pending.fetch_add(1);
  const driver::Kernel kernel{name, &Command::run, &Command::release, command.release()};
  {
    const runtime::simulated::Said said(nanoseconds);
    const runtime::StreamRef where{device.index(), own.id()};
    glue::translated([&] { runtime::submit(where, kernel, {nullptr, operands, {}}, outputs); });
  }
  if (std::any_of(steps.begin(), steps.end(), [](const Step& one) { return !one.copies.empty(); })) {
    const c10::StreamGuard on_own(own);
    const at::NoGradGuard no_grad;
    for (const Step& one : steps) {
      for (const auto& [to, from] : one.copies) to.copy_(from, /*non_blocking=*/true);
    }
  }
  return c10::make_intrusive<OwnWork>(getRank(), op_type(steps), own, std::move(results), outcome, sequence,
                                      blocks_host);
}

// --- what it takes ---

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

// --- collectives ---

Communicator::WorkPtr Communicator::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast", getBackendName());
  check_root(options.rootRank + options.rootTensor, getSize());
  Step own = step(Kind::kBroadcast, tensor);
  own.title = "broadcast";
  const bool is_root = options.rootRank == getRank();
  own.task.operation.root = static_cast<int32_t>(options.rootRank);
  if (is_root) {
    give(own, tensor);
  } else {
    take(own, tensor);
  }
  return issue(std::move(own), options.timeout, tensors);
}

Communicator::WorkPtr Communicator::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& given = only(tensors, "all_reduce", getBackendName());
  // A sum of complex numbers is that of their parts; PyTorch's Python passes them so, C++ may not.
  const at::Tensor tensor = given.is_complex() ? at::view_as_real(given) : given;
  Step own = step(Kind::kAllReduce, tensor);
  own.title = "all_reduce";
  set_reduction(own, options.reduceOp);
  give(own, tensor);
  take(own, tensor);
  return issue(std::move(own), options.timeout, tensors);
}

Communicator::WorkPtr Communicator::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  C10_THROW_ERROR(Error,
                  "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.");
}

Communicator::WorkPtr Communicator::allreduce_coalesced(Tensors& tensors,
                                                        const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "Tensor list must be nonempty");
  const auto each = [&](size_t i) {
    check(tensors[i], getBackendName());
    Step own = step(Kind::kAllReduce, tensors[i]);
    own.title = "allreduce_coalesced";
    set_reduction(own, options.reduceOp);
    give(own, tensors[i]);
    take(own, tensors[i]);
    issue(std::move(own), options.timeout, {tensors[i]});
  };
  return together(each, tensors.size());
}

Communicator::WorkPtr Communicator::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& given = only(tensors, "reduce", getBackendName());
  check_root(options.rootRank + options.rootTensor, getSize());
  const at::Tensor tensor = given.is_complex() ? at::view_as_real(given) : given;
  Step own = step(Kind::kReduce, tensor);
  own.title = "reduce";
  own.task.operation.root = static_cast<int32_t>(options.rootRank);
  set_reduction(own, options.reduceOp);
  give(own, tensor);
  if (options.rootRank == getRank()) take(own, tensor);
  return issue(std::move(own), options.timeout, tensors);
}

Communicator::WorkPtr Communicator::allgather(Lists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather", getBackendName());
  const Tensors& all = only_list(outputs, "all_gather", getSize());
  Step own = step(Kind::kAllGather, input);
  own.title = "all_gather";
  own.task.operation.sizes_may_differ = true;
  give(own, input);
  for (const at::Tensor& output : all) take_anywhere(own, output, input);
  return issue(std::move(own), options.timeout, all);
}

Communicator::WorkPtr Communicator::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  check(input, getBackendName());
  check(output, getBackendName());
  TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                   "output tensor must have the same type as input tensor");
  TORCH_CHECK_VALUE(
      input.numel() * getSize() == output.numel(),
      "output tensor size must be equal to world_size times input tensor size: output has shape ",
      shape_text(output), ", input ", shape_text(input), ", and world_size is ", getSize());
  Step own = step(Kind::kAllGather, input);
  own.title = "_all_gather_base";
  give(own, input);
  take(own, output);
  own.task.takes = split_bytes(own.task.takes[0], static_cast<size_t>(getSize()));
  return issue(std::move(own), options.timeout, {output});
}

Communicator::WorkPtr Communicator::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(),
                    "all_gather_into_tensor_coalesced: ", outputs.size(), " outputs, ", inputs.size(),
                    " inputs");
  return together([&](size_t i) { _allgather_base(outputs[i], inputs[i], options); }, outputs.size());
}

Communicator::WorkPtr Communicator::gather(Lists& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather", getBackendName());
  check_root(options.rootRank, getSize());
  const bool is_root = options.rootRank == getRank();
  TORCH_CHECK_VALUE(is_root || outputs.empty(), "requires empty output on non-root");
  Step own = step(Kind::kGather, input);
  own.title = "gather";
  own.task.operation.root = static_cast<int32_t>(options.rootRank);
  give(own, input);
  Tensors results;
  if (is_root) {
    results = only_list(outputs, "gather", getSize());
    for (const at::Tensor& output : results) take_anywhere(own, output, input);
  }
  return issue(std::move(own), options.timeout, results);
}

Communicator::WorkPtr Communicator::scatter(Tensors& outputs, Lists& inputs,
                                            const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter", getBackendName());
  check_root(options.rootRank, getSize());
  const bool is_root = options.rootRank == getRank();
  TORCH_CHECK_VALUE(is_root || inputs.empty(), "requires empty input on non-root");
  Step own = step(Kind::kScatter, output);
  own.title = "scatter";
  own.task.operation.root = static_cast<int32_t>(options.rootRank);
  if (is_root) {
    for (const at::Tensor& input : only_list(inputs, "scatter", getSize())) give_piece(own, input, output);
  }
  take(own, output);
  return issue(std::move(own), options.timeout, outputs);
}

Communicator::WorkPtr Communicator::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter", getBackendName());
  Step own = step(Kind::kReduceScatter, output);
  own.title = "reduce_scatter";
  own.task.operation.sizes_may_differ = true;
  set_reduction(own, options.reduceOp);
  for (const at::Tensor& input : only_list(inputs, "reduce_scatter", getSize()))
    give_piece(own, input, output);
  take(own, output);
  return issue(std::move(own), options.timeout, outputs);
}

Communicator::WorkPtr Communicator::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& options) {
  check(input, getBackendName());
  check(output, getBackendName());
  TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                   "input tensor must be the same type as the output tensor.");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * getSize(),
                    "input tensor must be the same size as output size times world size: input has shape ",
                    shape_text(input), ", output ", shape_text(output), ", and world_size is ", getSize());
  Step own = step(Kind::kReduceScatter, output);
  own.title = "_reduce_scatter_base";
  set_reduction(own, options.reduceOp);
  give(own, input);
  set_pieces(own, split_bytes(own.task.gives[0], static_cast<size_t>(getSize())));
  take(own, output);
  return issue(std::move(own), options.timeout, {output});
}

Communicator::WorkPtr Communicator::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(),
                    "reduce_scatter_tensor_coalesced: ", outputs.size(), " outputs, ", inputs.size(),
                    " inputs");
  return together([&](size_t i) { _reduce_scatter_base(outputs[i], inputs[i], options); }, outputs.size());
}

Communicator::WorkPtr Communicator::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_sizes,
                                                  std::vector<int64_t>& input_sizes,
                                                  const c10d::AllToAllOptions& options) {
  check(input, getBackendName());
  check(output, getBackendName());
  Step own = step(Kind::kAllToAll, input);
  own.title = "all_to_all";
  own.task.operation.sizes_may_differ = true;
  give(own, input);
  take(own, output);
  const std::vector<Bytes> pieces = pieces_of(input, own.task.gives[0], input_sizes, getSize(), "input");
  own.task.takes = pieces_of(output, own.task.takes[0], output_sizes, getSize(), "output");
  set_pieces(own, pieces);
  return issue(std::move(own), options.timeout, {output});
}

Communicator::WorkPtr Communicator::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(
      static_cast<int>(outputs.size()) == getSize() && static_cast<int>(inputs.size()) == getSize(),
      "all_to_all needs a tensor for each of ", getSize(), " ranks, got ", outputs.size(), " outputs and ",
      inputs.size(), " inputs");
  Step own = step(Kind::kAllToAll, inputs[0]);
  own.title = "all_to_all";
  own.task.operation.sizes_may_differ = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i], getBackendName());
    check(outputs[i], getBackendName());
    give_piece(own, inputs[i], inputs[i]);
    take(own, outputs[i]);
  }
  return issue(std::move(own), options.timeout, outputs);
}

Communicator::WorkPtr Communicator::together(const std::function<void(size_t)>& each, size_t count) {
  const bool was_coalescing = is_coalescing_;
  if (!was_coalescing) startCoalescing();
  try {
    for (size_t i = 0; i < count; ++i) each(i);
  } catch (...) {
    if (!was_coalescing) {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_coalescing_ = false;
      coalesced_.clear();
      coalesced_results_.clear();
    }
    throw;
  }
  return was_coalescing ? nullptr : endCoalescing();
}

Communicator::WorkPtr Communicator::message(Kind kind, Tensors& tensors, int peer) {
  const bool is_sent = kind == Kind::kSend;
  TORCH_CHECK_VALUE(tensors.size() == 1, "Tensor list must be nonempty and of one tensor, got ",
                    tensors.size());
  check(tensors[0], getBackendName());
  check_root(peer, getSize());
  Step own = step(kind, tensors[0]);
  own.title = (is_sent ? "send " : "recv ") + std::to_string(getRank()) + (is_sent ? "->" : "<-") +
              std::to_string(peer);
  own.task.operation.root = peer;
  if (is_sent) {
    give(own, tensors[0]);
  } else {
    take(own, tensors[0]);
    own.task.operation.bytes = own.task.takes[0].size;
  }
  return issue(std::move(own), c10d::kUnsetTimeout, tensors);
}

Communicator::WorkPtr Communicator::send(Tensors& tensors, int peer, int) {
  return message(Kind::kSend, tensors, peer);
}
Communicator::WorkPtr Communicator::recv(Tensors& tensors, int peer, int) {
  return message(Kind::kRecv, tensors, peer);
}
Communicator::WorkPtr Communicator::recvAnysource(Tensors&, int) {
  TORCH_CHECK(false,
              "ProcessGroupNCCL does not support recvAnysource: a message is received from a rank that is "
              "named, recv(tensor, src)");
}

Communicator::WorkPtr Communicator::barrier(const c10d::BarrierOptions& options) {
  Step own;
  const int index = !options.device_ids.empty()    ? static_cast<int>(options.device_ids.front())
                    : bound_device_id_.has_value() ? bound_device_id_->index()
                                                   : device_in_use();
  glue::check_device_index(index);
  own.device = c10::Device(device_type(), static_cast<c10::DeviceIndex>(index));
  own.title = "all_reduce_barrier";
  own.task.operation.kind = Kind::kBarrier;
  return issue(std::move(own), options.timeout, {}, /*blocks_host=*/true);
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

// --- the group ---

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
  const auto deadline = Transport::Clock::now() + options_->timeout;
  while (shared_->num_pending.load() != 0 && !shared_->transport.has_failed() &&
         Transport::Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace loom::distributed
