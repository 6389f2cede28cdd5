// An op as this device serves it: what its schema and the op table say, worked out once, and what calls of it
// have shown. One for each overload, shared by all threads and by both ways of calling it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>
#include <vector>

#include "runtime/op_record.h"
#include "torch/core/device.h"
#include "torch/cuda/alerts.h"
#include "torch/cuda/refusals.h"
#include "torch/cuda/widening.h"
#include "torch/engine/own_kernels.h"
#include "torch/ops/call_plan.h"
#include "torch/ops/fallback.h"
#include "torch/ops/op_facts.h"
#include "torch/ops/shape_functions.h"
#include "torch/random/ops.h"

namespace loom::glue {

// What an op may be given besides tensors of one loom device.
struct OperandPolicy {
  bool host_scalars = false;  // tensors of the CPU with no dimension (TensorIterator's rule)
  bool host_tensors = false;  // tensors of the CPU (lengths, steps)
  bool host_lists = false;    // lists of tensors of the CPU (index tensors)
};

enum class ArgKind : uint8_t { kOther, kTensor, kTensorList, kOptionalTensorList, kDevice, kGenerator };

struct Argument {
  size_t index;
  ArgKind kind;
  bool is_written;
};

// What an argument contributes to the key of a call: itself, or its type alone.
enum class KeyPart : uint8_t { kExact, kTypeOnly };

class Op {
 public:
  explicit Op(const c10::OperatorHandle& own_handle);
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // The record of an op, for as long as the process lives. Without a lock after the first call.
  static Op& of(const c10::OperatorHandle& handle);
  // By name; throws where PyTorch has no such op. Keep the reference.
  static Op& named(const char* name, const char* overload);

  const char* name() const { return record.full_name; }
  // False: there is no kernel for the device. Asked again, since kernels may come later.
  bool is_served();
  const fallback::Op& fallback_entry();
  // PyTorch's in C++; invalid where there is none.
  const ShapeFunction& shape_function() const { return shape_function_; }
  // Whether there is one, in C++ or in Python. Asked again, since Python's may come later.
  bool has_shapes();

  const c10::OperatorHandle handle;
  const OpFacts& facts;
  const runtime::OpRecord& record;
  const OperandPolicy policy;
  const Alert* const alert;                   // null: deterministic on every chip
  const Refusal* const refusal;               // null: CUDA has kernels for all that the engine has
  const DtypeSet widened_dtypes;              // that the engine computes in wider ones
  const DtypeSet widened_sparse_dtypes;       // the same where an operand is sparse
  const OwnKernel own_kernel;                 // null: the engine's is run
  const cuda_random::RandomOp* const random;  // null: it draws no numbers that CUDA has kernels for
  const DtypeSet asked_dtypes;                // widened_dtypes, and those that CUDA refuses
  const bool is_refused_by_row;               // of some dtypes where the operands are CSR
  std::vector<Argument> arguments;            // those that are not kOther
  std::vector<KeyPart> key_parts;             // of every argument
  size_t num_arguments = 0, num_returns = 0;
  bool is_foreach = false, has_generator = false, writes = false;
  // A kernel of ours divides by zero as CUDA does.
  bool takes_zeros = false;
  // Its results are tensors whose metadata the arguments decide. `is_index`: only without masks.
  bool can_queue = false, is_index = false;
  // The host learns a size or a value from it; `is_index_put`: only with masks, or indices of the host's.
  bool is_data_dependent = false, is_index_put = false, is_repeat = false;
  // The host looks at its values before it goes on, unless the argument `unsafe` or `check_errors` forbids
  // it, or a range from `min` to `max` is given.
  bool looks_at_values(const torch::jit::Stack& stack) const {
    return facts.has(op_flag::kHostWaits) && is_asked_to_look(stack);
  }
  // Values decide the size of a result, whether or not the host must learn it.
  bool has_sizes_of_values = false;
  // The engine `meta` has no kernel of it.
  bool lacks_shapes = false;
  // torch.jit's tracer records nothing of it, and PyTorch makes it of other ops: it records those.
  bool is_traced_in_parts = false;
  // It returns an object that keeps what it was given: packed weights.
  bool makes_object = false;
  // Arguments that no key of a call counts (numbers with a fraction) have a say in what its kernel costs.
  // Asked where time is simulated.
  bool costs_by_value();
  // Whether it is one command on a device; otherwise the chip leaves it to its parts.
  bool is_whole_on(int device) const { return !facts.kernel.has_value() || chip_has(*facts.kernel, device); }
  // A call of it was to be queued, and its shape function had no answer. Stays so.
  std::atomic<bool> was_not_inferred{false};
  PlanTable plans;

 private:
  void read_schema();
  bool fits(const c10::OperatorHandle& other) const;
  bool is_asked_to_look(const torch::jit::Stack& stack) const;

  struct AskedToLook {
    size_t place;
    bool if_true;
  };
  std::optional<AskedToLook> asked_to_look_;
  struct Range {
    size_t min, max;  // places of arguments; the same: there are none
  } range_{0, 0};
  const void* const key_;
  const ShapeFunction shape_function_;
  const bool is_permanent_;  // PyTorch's own and ours: never taken away
  std::atomic<bool> is_served_{false}, has_shapes_{false};
  std::atomic<int8_t> costs_by_value_{-1};  // -1: not asked yet
  std::atomic<const fallback::Op*> fallback_{nullptr};
};

}  // namespace loom::glue
