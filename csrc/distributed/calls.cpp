// What PyTorch calls of the communicator: each call becomes a step, or several.
#include <ATen/ops/view_as_real.h>
#include <c10/util/Exception.h>

#include <utility>

#include "distributed/command.h"
#include "distributed/communicator.h"
#include "distributed/transport/reduction.h"
#include "torch/core/device.h"

namespace loom::distributed {

namespace {

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
  const at::ScalarType dtype = step.task.dtype;
  // NCCL has e4m3fn and e5m2 alone.
  TORCH_CHECK(options_->backend != "nccl" || !c10::isFloat8Type(dtype) || dtype == at::kFloat8_e4m3fn ||
                  dtype == at::kFloat8_e5m2,
              "Unsupported Float8 type for NCCL reduction: ", dtype, ". Allowed: Float8_e4m3fn, Float8_e5m2");
  glue::translated([&] { check_reduction(step.task.operation.reduction, dtype); });
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) step.task.factor = factor_of(op);
}

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
  // Their rows are cut, so that the order in memory counts.
  for (const at::Tensor* tensor : {&input, &output}) {
    TORCH_CHECK_VALUE(tensor->is_contiguous(), "Tensors must be contiguous: all_to_all_single got strides ",
                      tensor->strides(), " for sizes ", tensor->sizes(), ". Pass .contiguous()");
  }
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
  own.device = c10::Device(glue::device_type(), static_cast<c10::DeviceIndex>(index));
  own.title = "all_reduce_barrier";
  own.task.operation.kind = Kind::kBarrier;
  return issue(std::move(own), options.timeout, {}, /*blocks_host=*/true);
}

}  // namespace loom::distributed
