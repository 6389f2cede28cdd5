// A call whose tensors are replaced by others of the same metadata: what infers an op's outputs runs on
// these.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <unordered_map>

#include "torch/loans/lend.h"

namespace loom::glue {

class StandIns {
 public:
  enum class Contents : uint8_t {
    kNone,   // of the device type meta, for shape functions
    kZeros,  // of the engine, for its kernel
    kOnes
  };

  // Of the arguments at the end of `stack`, which are lent.
  StandIns(const Op& op, const torch::jit::Stack& stack, const Lending& lending, Contents contents);

  torch::jit::Stack arguments;
  c10::SmallVector<Loan, 6> loans;  // the originals, each with what stands in for it

 private:
  at::Tensor of(const at::Tensor& tensor);
  c10::IValue of(const c10::IValue& value);

  const Lending& lending_;
  const Contents contents_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;
};

// The bytes that stand-ins of a call's operands take.
size_t bytes_of_stand_ins(const Lending& lending);

}  // namespace loom::glue
