#include "torch/inference/kernel_words.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>

#include <exception>
#include <optional>
#include <unordered_map>

#include "torch/core/python_errors.h"
#include "torch/engine/engine.h"
#include "torch/loans/replace_tensors.h"
#include "torch/loans/silence.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

namespace {

constexpr size_t kMostBytes = size_t{1} << 24;  // of all operands

// The arguments with zeros of the host in the place of the engine's tensors; nothing where there are none of
// their kind, or too many.
class HostZeros {
 public:
  static std::optional<torch::jit::Stack> of(const torch::jit::Stack& arguments) {
    HostZeros zeros;
    torch::jit::Stack call;
    for (const c10::IValue& value : arguments) {
      if (value.isDevice()) {
        call.emplace_back(c10::Device(c10::kCPU));
      } else {
        call.push_back(
            with_tensors_replaced(value, [&](const at::Tensor& tensor) { return zeros.of(tensor); }));
      }
    }
    return zeros.are_possible_ ? std::optional(std::move(call)) : std::nullopt;
  }

 private:
  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta() || !are_possible_) return tensor;
    at::Tensor& known = known_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    if (tensor.layout() == c10::kStrided && !tensor.is_quantized()) {
      bytes_ += at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
    } else {
      are_possible_ = false;
    }
    are_possible_ &= bytes_ <= kMostBytes;
    if (!are_possible_) return tensor;
    known = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU)).zero_();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      known.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return known;
  }

  size_t bytes_ = 0;
  bool are_possible_ = true;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;
};

bool has_host_kernel(const Op& op) {
  // A kernel that draws would change the program's random numbers.
  return !op.has_generator && !op.handle.hasTag(at::Tag::nondeterministic_seeded) &&
         op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

}  // namespace

void rethrow_in_kernel_words(const Op& op, const torch::jit::Stack& arguments) {
  const std::exception_ptr own = std::current_exception();
  text_of_refusal();
  {
    const ShapeFunctionScope below_programs;
    const Silence silence;
    if (op.shape_function()) {
      torch::jit::Stack call = arguments;
      op.shape_function()(call);
    }
    if (std::optional<torch::jit::Stack> call; has_host_kernel(op) && (call = HostZeros::of(arguments))) {
      call_kernel(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &*call);
    }
  }
  std::rethrow_exception(own);
}

}  // namespace loom::glue
