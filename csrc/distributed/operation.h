// What each rank says of an operation before data moves: plain data, which other processes read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace loom::distributed {

enum class Kind : uint8_t {
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
};
// The operation by the name of torch.distributed's function ("all_reduce").
const char* name_of(Kind kind) noexcept;
// By which NCCL's watchdog and flight recorder name it ("ALLREDUCE").
const char* nccl_name_of(Kind kind) noexcept;

enum class Reduction : uint8_t { kNone, kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor, kScaledSum };
const char* name_of(Reduction reduction) noexcept;

struct Operation {
  static constexpr size_t kMaxDims = 8, kLineBytes = 240;

  uint64_t sequence = 0;     // of the group's operations, from 1
  int64_t numel = 0;         // elements that this rank gives, or takes where it gives none
  uint64_t bytes = 0;        // that this rank gives to all
  uint64_t piece_bytes = 0;  // the most that this rank gives to one rank
  uint64_t machine = 0;      // a hash of its name: devices of two machines may have the same number
  int64_t ready_ns = -1;     // when this rank is ready, in simulated time; −1: not known
  int32_t root = -1;         // −1: none
  int32_t device = -1;       // of the machine
  Kind kind = Kind::kBarrier;
  Reduction reduction = Reduction::kNone;
  int8_t dtype = -1;  // PyTorch's number of it
  bool sizes_may_differ = false;
  uint8_t num_dims = 0;
  std::array<int64_t, kMaxDims> sizes{};
  std::array<char, kLineBytes> line{};  // of the Python code that called it

  void set_line(std::string_view text) noexcept;
  void set_sizes(std::span<const int64_t> sizes) noexcept;
  // "all_reduce(float32 [4], sum) as operation 2 at train.py:10"
  std::string text() const;
};
static_assert(sizeof(Operation) <= 448);

// Why operations that ranks have begun together do not belong together, or "". All ranks find the same.
std::string mismatch(std::span<const Operation> operations);

}  // namespace loom::distributed
