#include "distributed/operation.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace loom::distributed {

namespace {

struct Names {
  const char *own, *nccl;
};
constexpr std::array<Names, 11> kKinds{{{"broadcast", "BROADCAST"},
                                        {"all_reduce", "ALLREDUCE"},
                                        {"reduce", "REDUCE"},
                                        {"all_gather", "ALLGATHER"},
                                        {"gather", "GATHER"},
                                        {"scatter", "SCATTER"},
                                        {"reduce_scatter", "REDUCE_SCATTER"},
                                        {"all_to_all", "ALLTOALL_BASE"},
                                        {"send", "SEND"},
                                        {"recv", "RECV"},
                                        {"barrier", "BARRIER"}}};
constexpr std::array<const char*, 10> kReductions{
    {"", "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"}};

std::string dtype_name(int8_t dtype) {
  std::string name = c10::toString(static_cast<c10::ScalarType>(dtype));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  // PyTorch's C++ has names of C's for these.
  if (name == "float") return "float32";
  if (name == "double") return "float64";
  if (name == "half") return "float16";
  if (name == "int") return "int32";
  if (name == "long") return "int64";
  if (name == "short") return "int16";
  if (name == "char") return "int8";
  if (name == "byte") return "uint8";
  return name;
}

bool belong_together(const Operation& first, const Operation& other) {
  return first.kind == other.kind && first.sequence == other.sequence && first.dtype == other.dtype &&
         first.root == other.root && first.reduction == other.reduction &&
         (first.numel == other.numel || (first.sizes_may_differ && other.sizes_may_differ));
}

}  // namespace

const char* name_of(Kind kind) noexcept { return kKinds[static_cast<size_t>(kind)].own; }
const char* nccl_name_of(Kind kind) noexcept { return kKinds[static_cast<size_t>(kind)].nccl; }
const char* name_of(Reduction reduction) noexcept { return kReductions[static_cast<size_t>(reduction)]; }

void Operation::set_line(std::string_view text) noexcept {
  // Of a long path the end says more.
  if (text.size() >= kLineBytes) text.remove_prefix(text.size() - kLineBytes + 1);
  line.fill(0);
  std::memcpy(line.data(), text.data(), text.size());
}

void Operation::set_sizes(std::span<const int64_t> given) noexcept {
  num_dims = static_cast<uint8_t>(std::min(given.size(), kMaxDims));
  std::copy_n(given.begin(), num_dims, sizes.begin());
}

std::string Operation::text() const {
  std::string text = std::string(name_of(kind)) + "(";
  if (dtype >= 0) {
    text += dtype_name(dtype) + " [";
    for (uint8_t dim = 0; dim < num_dims; ++dim) {
      text += (dim == 0 ? "" : ", ") + std::to_string(sizes[dim]);
    }
    text += "]";
  }
  if (reduction != Reduction::kNone) text += std::string(", ") + name_of(reduction);
  if (root >= 0) {
    const bool is_message = kind == Kind::kSend || kind == Kind::kRecv;
    text += std::string(is_message ? ", peer " : ", root ") + std::to_string(root);
  }
  text += ") as operation " + std::to_string(sequence);
  if (line[0] != 0) text += std::string(" at ") + line.data();
  return text;
}

std::string mismatch(std::span<const Operation> operations) {
  for (size_t rank = 1; rank < operations.size(); ++rank) {
    if (belong_together(operations[0], operations[rank])) continue;
    return "the ranks of the group have called collectives that do not belong together: rank 0 called " +
           operations[0].text() + ", rank " + std::to_string(rank) + " called " + operations[rank].text() +
           ". All ranks must call the same collectives in the same order, with the same dtype, number of "
           "elements, reduction and root";
  }
  return "";
}

}  // namespace loom::distributed
