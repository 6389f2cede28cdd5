#include "torch/inference/stand_ins.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "torch/engine/generator.h"
#include "torch/loans/replace_tensors.h"

namespace loom::glue {

namespace {

// From the start of its storage.
size_t bytes_of(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                          static_cast<size_t>(tensor.storage_offset()));
}

// The place in its storage included.
at::Tensor with_metadata_of(const at::Tensor& tensor, const at::Tensor& whole) {
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(whole.storage()), whole.key_set() | (tensor.key_set() & kMathBits),
      whole.dtype());
  part.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) part.unsafeGetTensorImpl()->set_wrapped_number(true);
  return part;
}

bool is_of_same_storage(const c10::TensorImpl* left, const at::Tensor& right) {
  return left->unsafe_storage().unsafeGetStorageImpl() ==
         right.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

size_t bytes_of_stand_ins(const Lending& lending) {
  size_t bytes = 0;
  for (const Loan& loan : lending.loans()) bytes += bytes_of(loan.alias);
  return bytes;
}

StandIns::StandIns(const Op& op, const torch::jit::Stack& stack, const Lending& lending, Contents contents)
    : lending_(lending), contents_(contents) {
  const size_t first = stack.size() - op.num_arguments;
  for (size_t i = first; i < stack.size(); ++i) arguments.push_back(of(stack[i]));
  for (const Argument& argument : op.arguments) {
    // Shape functions written in Python take none; a kernel without one would draw from the host's.
    if (argument.kind == ArgKind::kGenerator) {
      arguments[argument.index] =
          contents == Contents::kNone ? c10::IValue() : c10::IValue(new_engine_generator());
    }
  }
  for (const Loan& loan : lending.loans()) {
    loans.push_back(loan);
    loans.back().alias = of(loan.alias);
  }
}

at::Tensor StandIns::of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const bool is_host = !lending_.is_alias(tensor);
  // A number in the shape of a tensor of the host's decides by its value, as an exponent or a bound.
  if (is_host && tensor.dim() == 0) return tensor;
  at::Tensor& known = known_[tensor.unsafeGetTensorImpl()];
  if (known.defined()) return known;
  if (is_host && contents_ != Contents::kNone) return known = tensor.clone();  // lengths, steps
  const std::array<int64_t, 1> elements = {static_cast<int64_t>(bytes_of(tensor) / tensor.itemsize())};
  const c10::ScalarType dtype = tensor.scalar_type();
  known = with_metadata_of(
      tensor, contents_ == Contents::kNone
                  ? at::detail::empty_strided_meta(elements, {1}, dtype)
                  : at::zeros(elements, at::device(engine_type(lending_.chosen())).dtype(dtype)));
  if (contents_ == Contents::kOnes && !c10::isQIntType(dtype) && !c10::isBitsType(dtype)) known.fill_(1);
  // Views of a common storage keep a common storage.
  for (const auto& [other, stand_in] : known_) {
    if (stand_in.is_same(known) || !is_of_same_storage(other, tensor)) continue;
    // The memory of a view may end where another's goes on.
    if (stand_in.storage().nbytes() >= known.storage().nbytes()) {
      known.unsafeGetTensorImpl()->set_storage_keep_dtype(stand_in.storage());
    } else {
      stand_in.unsafeGetTensorImpl()->set_storage_keep_dtype(known.storage());
    }
  }
  return known;
}

c10::IValue StandIns::of(const c10::IValue& value) {
  if (value.isDevice()) {
    return c10::Device(contents_ == Contents::kNone ? c10::kMeta : engine_type(lending_.chosen()));
  }
  return with_tensors_replaced(value, [this](const at::Tensor& tensor) { return of(tensor); });
}

}  // namespace loom::glue
