// What an op returns for arguments of given metadata: learned when it runs in place, used to make its outputs
// before it runs on a worker or in a graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <vector>

#include "torch/loans/lend.h"

namespace loom::glue {

// The size of an operand or output, and how its memory reads.
struct Layout {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;  // in elements, from the start of the storage
  bool is_conj = false, is_neg = false;

  static Layout of(const at::Tensor& tensor);
  // What matters for values: the offset does not.
  bool fits(const at::Tensor& tensor) const;
};

struct Output {
  enum class Kind : uint8_t {
    kUndefined,
    kNew,      // in new memory: `index` counts storages
    kOperand,  // an operand itself: `index` counts loans
    kSame,     // the very tensor that an earlier output is: `index` counts outputs, those of lists included
    kView      // of an operand's memory; the offset counts from that operand's
  };
  Kind kind = Kind::kUndefined;
  size_t index = 0;
  Layout layout;
};

struct InferredOutputs {
  InferredOutputs() = default;
  ~InferredOutputs() { delete allocations_.load(std::memory_order_acquire); }
  InferredOutputs(const InferredOutputs&) = delete;
  InferredOutputs& operator=(const InferredOutputs&) = delete;

  struct Return {
    bool is_list = false;
    std::vector<Output> outputs;
  };
  struct Resized {  // an operand that the op gives another size
    size_t loan;
    Layout layout;
  };
  // False: what it returns cannot be made before it ran.
  bool can_queue = true;
  std::vector<Return> returns;
  std::vector<size_t> storage_bytes;
  std::vector<Resized> resized;

  // The kernel's allocations: which storage each becomes (−1: scratch).
  struct Allocation {
    size_t bytes;
    int storage;
  };
  using Allocations = std::vector<Allocation>;
  // Null until a run has shown them: a shape function does not.
  const Allocations* allocations() const { return allocations_.load(std::memory_order_acquire); }
  // From any thread; the first call stays.
  void learn_allocations(Allocations seen) const;

 private:
  mutable std::atomic<const Allocations*> allocations_{nullptr};
};

// Null when no call of this key (infer.h) was seen. Safe from any thread. A queued op compares what it is
// said to return with what its kernel returns.
std::shared_ptr<const InferredOutputs> find_inferred(const CallKey& key);
void learn_outputs(const CallKey& key, std::shared_ptr<const InferredOutputs> inferred);

// The source of what a call returns. A shape function may return one tensor where the kernel returns two that
// are equal, as that of mkldnn_rnn_layer_backward does: there they are two.
enum class ShownBy : uint8_t { kKernel, kShapeFunction };

// What a run shows: `stack` ends with the engine's results, before they are adopted. `allocations`: the
// kernel's, all seen; null where they do not count.
std::shared_ptr<const InferredOutputs> observe(const torch::jit::Stack& stack, size_t num_returns,
                                               const c10::SmallVector<Loan, 6>& loans,
                                               const OutputAllocations* allocations, ShownBy shown_by);

// Where what was said of a call differs from what it returned: "agrees", or "sizes", "dtypes", "strides",
// "aliasing", "storage", and how.
std::pair<std::string, std::string> compare(const InferredOutputs& said, const InferredOutputs& shown);

// Fresh device memory and tensors for an inferred, on the current stream.
class PreparedOutputs {
 public:
  PreparedOutputs(const InferredOutputs& inferred, const c10::SmallVector<Loan, 6>& loans, int device);
  // The results in the place of the arguments.
  void push(torch::jit::Stack& stack) const;
  // Where the engine reaches each new storage.
  std::vector<void*> addresses(const runtime::Device& target) const;
  const std::vector<c10::Storage>& storages() const { return storages_; }

 private:
  at::Tensor make(const Output& output, const c10::SmallVector<Loan, 6>& loans);

  std::vector<c10::Storage> storages_;
  c10::SmallVector<at::Tensor, 6> made_;  // all outputs, in order
  std::vector<c10::IValue> results_;
};

}  // namespace loom::glue
