#include "distributed/issue.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "distributed/communicator.h"
#include "torch/core/device.h"
#include "torch/loans/lend.h"
#include "torch/memory/lazy.h"
#include "torch/memory/worlds.h"

namespace loom::distributed {

namespace {

// Of the tensor's memory, as kernels reach it.
Bytes bytes_of(const at::Tensor& tensor, bool is_written) {
  const size_t size = static_cast<size_t>(tensor.numel()) * tensor.itemsize();
  if (size == 0) return {};
  glue::check_world(tensor, "a collective");
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  char* const first =
      static_cast<char*>(glue::devices().engine_address(glue::device_data(storage, is_written)));
  return {first + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()), size};
}

// Which contiguous memory stands for it.
at::Tensor dense(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

}  // namespace

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    text += std::to_string(tensor.size(dim)) + (dim + 1 < tensor.dim() || tensor.dim() == 1 ? "," : "");
    if (dim + 1 < tensor.dim()) text += " ";
  }
  return text + ")";
}

void check(const at::Tensor& tensor, const std::string& backend) {
  TORCH_CHECK_VALUE(
      tensor.device().type() == glue::device_type() && !tensor.is_sparse() && tensor.layout() == at::kStrided,
      "Tensors must be ", glue::device_name_upper(), " and dense: ", backend, " got a tensor of ",
      tensor.device(), " with layout ", tensor.layout());
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(),
                    "Tensors must be contiguous: Tensors must be non-overlapping and dense, got sizes ",
                    tensor.sizes(), " with strides ", tensor.strides(), ". Pass .contiguous()");
  glue::check_has_memory(tensor, "a collective");
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what, const std::string& backend) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what,
                    ": Expecting one tensor only but got multiple: ", tensors.size());
  check(tensors[0], backend);
  return tensors[0];
}

const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, const char* what,
                                         int num_ranks) {
  TORCH_CHECK_VALUE(lists.size() == 1, what, " requires a single-element list, got ", lists.size());
  TORCH_CHECK_VALUE(static_cast<int>(lists[0].size()) == num_ranks, what, ": Incorrect list size ",
                    lists[0].size(), ". List size should be ", num_ranks,
                    ", same as size of the process group.");
  return lists[0];
}

void check_root(int64_t root, int num_ranks) {
  TORCH_CHECK_VALUE(root >= 0 && root < num_ranks, "Invalid rank ", root, ": the group has the ranks 0 to ",
                    num_ranks - 1);
}

void give(Step& step, const at::Tensor& tensor) {
  step.task.gives = {bytes_of(tensor, false)};
  step.task.operation.bytes = step.task.gives[0].size;
  step.inputs.push_back(tensor);
}

void take(Step& step, const at::Tensor& tensor) {
  step.task.takes.push_back(bytes_of(tensor, true));
  step.outputs.push_back(tensor);
}

void take_anywhere(Step& step, const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(),
                   "Invalid usage of tensors with different dtypes: ", tensor.scalar_type(), " and ",
                   like.scalar_type());
  TORCH_CHECK_VALUE(tensor.device() == like.device(), "Tensors must be on one device, got ", tensor.device(),
                    " and ", like.device());
  if (tensor.is_non_overlapping_and_dense()) return take(step, tensor);
  const at::Tensor elsewhere = at::empty_like(tensor, at::MemoryFormat::Contiguous);
  take(step, elsewhere);
  step.copies.emplace_back(tensor, elsewhere);
}

void give_piece(Step& step, const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(),
                   "Invalid usage of tensors with different dtypes: ", tensor.scalar_type(), " and ",
                   like.scalar_type());
  TORCH_CHECK_VALUE(tensor.device() == like.device(), "Tensors must be on one device, got ", tensor.device(),
                    " and ", like.device());
  const at::Tensor whole = dense(tensor);
  const Bytes piece = bytes_of(whole, false);
  step.task.gives.push_back(piece);
  step.inputs.push_back(whole);
  Operation& operation = step.task.operation;
  operation.bytes += piece.size;
  operation.piece_bytes = std::max<uint64_t>(operation.piece_bytes, piece.size);
}

void set_pieces(Step& step, std::vector<Bytes> pieces) {
  Operation& operation = step.task.operation;
  for (const Bytes& piece : pieces) {
    operation.piece_bytes = std::max<uint64_t>(operation.piece_bytes, piece.size);
  }
  step.task.gives = std::move(pieces);
}

std::vector<Bytes> pieces_of(const at::Tensor& tensor, const Bytes& whole, const std::vector<int64_t>& sizes,
                             int num_ranks, const char* what) {
  const auto n = static_cast<size_t>(num_ranks);
  const int64_t length = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK(!sizes.empty() || length % num_ranks == 0,
              "Tensor's dim 0 does not divide equally across group size: ", what, " of shape ",
              shape_text(tensor), ", ", num_ranks, " ranks. Give ", what, "_split_sizes");
  if (!sizes.empty()) {
    TORCH_CHECK(sizes.size() == n, "Number of tensor splits not equal to group size: ", what,
                "_split_sizes has ", sizes.size(), ", the group ", num_ranks);
    int64_t sum = 0;
    for (const int64_t size : sizes) {
      TORCH_CHECK(size >= 0, what, "_split_sizes: ", size, " is negative");
      sum += size;
    }
    TORCH_CHECK(sum == length, "Split sizes doesn't match total dim 0 size: ", what, "_split_sizes sum to ",
                sum, ", dim 0 is ", length);
  }
  std::vector<Bytes> pieces(n);
  const size_t row = length == 0 ? 0 : whole.size / static_cast<size_t>(length);
  size_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t rows = static_cast<size_t>(sizes.empty() ? length / num_ranks : sizes[i]);
    pieces[i] = {whole.data + begin, rows * row};
    begin += rows * row;
  }
  return pieces;
}

int32_t devices_of_machine(int device) { return glue::devices().device(device).physical; }

const char* kernel_name(const std::string& backend, const Task& task) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string>;
  // In a dry run by PyTorch's name of the op, by which plans know the family.
  const bool is_planned = runtime::detail::world.load() != 0;
  std::string name = (is_planned ? "c10d::" : backend + ":") + name_of(task.operation.kind);
  if (backend == "nccl" && !is_planned) {
    switch (task.operation.kind) {
      case Kind::kAllReduce:
      case Kind::kBarrier:
        name = "ncclDevKernel_AllReduce_";
        break;
      case Kind::kReduce:
        name = "ncclDevKernel_Reduce_";
        break;
      case Kind::kReduceScatter:
        name = "ncclDevKernel_ReduceScatter_";
        break;
      case Kind::kBroadcast:
        name = "ncclDevKernel_Broadcast_RING_LL";
        break;
      case Kind::kAllGather:
        name = "ncclDevKernel_AllGather_RING_LL";
        break;
      default:
        name = "ncclDevKernel_SendRecv";
        break;
    }
    if (name.back() == '_') {
      const char* reduction = "Sum";
      switch (task.operation.reduction) {
        case Reduction::kProduct:
          reduction = "Prod";
          break;
        case Reduction::kMin:
        case Reduction::kMax:
          reduction = "MinMax";
          break;
        case Reduction::kAverage:
        case Reduction::kScaledSum:
          reduction = "PreMulSum";
          break;
        default:
          break;
      }
      const c10::ScalarType dtype = task.dtype;
      const bool is_float = c10::isFloatingType(dtype);
      const std::string width = std::to_string(8 * c10::elementSize(dtype));
      const std::string type = dtype == c10::ScalarType::BFloat16 ? "bf16" : (is_float ? "f" : "u") + width;
      name += std::string(reduction) + "_" + type + "_RING_LL";
    }
    name += "(ncclDevKernelArgsStorage<4096ul>)";
  }
  const std::lock_guard<std::mutex> lock(*mutex);
  return names->insert(name).first->c_str();
}

c10d::OpType op_type(const std::vector<Step>& steps) {
  if (steps.size() != 1) return c10d::OpType::COALESCED;
  switch (steps.front().task.operation.kind) {
    case Kind::kBroadcast:
      return c10d::OpType::BROADCAST;
    case Kind::kAllReduce:
      return c10d::OpType::ALLREDUCE;
    case Kind::kReduce:
      return c10d::OpType::REDUCE;
    case Kind::kAllGather:
      return c10d::OpType::ALLGATHER;
    case Kind::kGather:
      return c10d::OpType::GATHER;
    case Kind::kScatter:
      return c10d::OpType::SCATTER;
    case Kind::kReduceScatter:
      return c10d::OpType::REDUCE_SCATTER;
    case Kind::kAllToAll:
      return c10d::OpType::ALLTOALL;
    case Kind::kSend:
      return c10d::OpType::SEND;
    case Kind::kRecv:
      return c10d::OpType::RECV;
    default:
      return c10d::OpType::BARRIER;
  }
}

}  // namespace loom::distributed
