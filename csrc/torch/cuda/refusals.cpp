#include "torch/cuda/refusals.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <vector>

#include "torch/core/device.h"
#include "torch/cuda/product_limits.h"
#include "torch/cuda/solver_kernels.h"
#include "util/sorted_rows.h"

namespace loom::glue {

namespace {

using Type = c10::ScalarType;

#include "torch/generated/refusal_dtypes.inc"

// Sorted by name.
constexpr Refusal kRefusals[] = {
#include "torch/generated/refusals.inc"
};

bool is_taken(const Refusal& refusal, Type type) { return (refusal.takes & set_of({type})) != 0; }

// The operands; none if one of them is of a layout that has kernels of its own.
std::vector<at::Tensor> operands_of(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> operands;
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.layout() != c10::kStrided || tensor.is_nested() || tensor.is_quantized()) return {};
    operands.push_back(tensor);
  }
  return operands;
}

bool has_quantized(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_quantized();
  });
}

bool is_reduced(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    if (!value.isString()) return false;
    const std::string_view reduction = value.toStringView();
    return reduction == "prod" || reduction == "mean" || reduction == "amin" || reduction == "amax";
  });
}

bool compares_dtypes(Refusal::Case when) {
  return when == Refusal::Case::kProduct || when == Refusal::Case::kBatches ||
         when == Refusal::Case::kConvolution;
}

// The two matrices, or batches of them, whose sizes fit; what they are added to stands before them.
bool do_sizes_fit(const std::vector<at::Tensor>& operands, int64_t dims) {
  const at::Tensor &left = operands[operands.size() - 2], &right = operands.back();
  if (left.dim() != dims || right.dim() != dims || left.size(-1) != right.size(-2)) return false;
  return dims == 2 || left.size(0) == right.size(0);
}

// self, mat2
void compare_dtypes_of_product(const std::vector<at::Tensor>& operands) {
  const at::Tensor &left = operands[0], &right = operands[1];
  TORCH_CHECK(!do_sizes_fit(operands, 2) || left.dtype() == right.dtype(),
              "expected mat1 and mat2 to have the same dtype, but got: ", left.dtype(),
              " != ", right.dtype());
}

// What it is added to, if anything; batch1; batch2.
void compare_dtypes_of_batches(const std::vector<at::Tensor>& operands) {
  const at::Tensor &left = operands[operands.size() - 2], &right = operands.back();
  if (!do_sizes_fit(operands, 3)) return;
  TORCH_CHECK(operands[0].dtype() == left.dtype(), "Input dtypes must be the same, got: input ",
              operands[0].dtype(), ", batch1: ", left.dtype(), ", batch2: ", right.dtype());
  TORCH_CHECK(left.numel() == 0 || right.numel() == 0 || left.dtype() == right.dtype(),
              "expected scalar type ", left.scalar_type(), " but found ", right.scalar_type());
}

// input, weight, and bias, if any
void compare_dtypes_of_convolution(const std::vector<at::Tensor>& operands) {
  const auto type_of = [](const at::Tensor& tensor) {
    return std::string("torch.cuda.") + c10::toString(tensor.scalar_type()) + "Tensor";
  };
  if (operands[0].numel() == 0 || operands[0].dim() != operands[1].dim()) return;
  for (size_t i = 1; i < operands.size(); ++i) {
    TORCH_CHECK(operands[i].scalar_type() == operands[0].scalar_type(), "Input type (", type_of(operands[0]),
                ") and ", i == 1 ? "weight" : "bias", " type (", type_of(operands[i]),
                ") should be the same");
  }
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups: PyTorch's own choice
// where there is no cuDNN.
const char* convolution_kernel(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor &input = arguments[0].toTensor(), &weight = arguments[1].toTensor();
  const std::vector<int64_t> dilation = arguments[5].toIntVector();
  const bool is_dilated = std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
  const bool is_transposed = arguments[6].toBool(), is_3d = weight.dim() == 5;
  const int64_t groups = arguments[8].toInt();
  if (is_transposed) return is_3d ? "slow_conv_transpose3d_out_cuda" : "slow_conv_transpose2d_out_cuda";
  const int64_t channels = weight.size(1) * groups;
  if (groups > 1 && groups == channels && input.dim() == weight.dim() && weight.size(0) % channels == 0) {
    return is_3d ? "conv_depthwise3d" : "conv_depthwise2d_forward_cuda";
  }
  return is_3d || is_dilated ? "slow_conv_dilated<>" : "slow_conv2d_cuda";
}

// input, dimensions, normalisation, and of complex-to-real the last size of the result.
void refuse_transform(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  std::vector<int64_t> sizes;
  for (const int64_t dim : arguments[1].toIntVector()) sizes.push_back(input.size(dim));
  if (arguments[3].isInt() && !sizes.empty()) sizes.back() = arguments[3].toInt();
  const auto is_power_of_two = [](int64_t size) { return (size & (size - 1)) == 0; };
  TORCH_CHECK(
      std::all_of(sizes.begin(), sizes.end(), is_power_of_two),
      "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, "
      "but got a signal size of",
      at::IntArrayRef(sizes));
}

[[noreturn]] void refuse(const char* kernel, Type type) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', kernel, "\" not implemented for '", c10::toString(type), "'");
}

// Of one matrix with itself only the values are added, which takes any dtype.
void refuse_rows(const Refusal& refusal, c10::ArrayRef<c10::IValue> arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isTensor()) return;
  const at::Tensor &left = arguments[0].toTensor(), &right = arguments[1].toTensor();
  if (left.layout() != c10::kSparseCsr || right.layout() != c10::kSparseCsr) return;
  const Type type = at::native::result_type({left, right});
  const bool is_one = left.values().const_data_ptr() == right.values().const_data_ptr();
  if (!is_taken(refusal, type) && !is_one && left.sizes() == right.sizes()) refuse(refusal.kernel, type);
}

}  // namespace

const Refusal* refusal_of(std::string_view full_name) { return find_row(kRefusals, full_name); }

bool refuses_rows(const Refusal* refusal) {
  return refusal != nullptr && refusal->when == Refusal::Case::kRows &&
         device_type() == c10::DeviceType::CUDA;
}

DtypeSet refused_dtypes_of(const Refusal* refusal) {
  if (refusal == nullptr || refuses_rows(refusal) || device_type() != c10::DeviceType::CUDA) return 0;
  return (~refusal->takes & ~kAnyOp & ~kMixed) | (compares_dtypes(refusal->when) ? kMixed : 0);
}

void refuse_as_cuda(const Refusal& refusal, c10::ArrayRef<c10::IValue> arguments, int device) {
  const runtime::Chip& chip = devices().device(device).chip();
  if (!chip.is_gpu) return;
  TORCH_CHECK_NOT_IMPLEMENTED(
      refusal.when != Refusal::Case::kAbsent || has_quantized(arguments), "Could not run '",
      refusal.full_name,
      "' with arguments from the 'CUDA' backend: PyTorch has no kernel of it for CUDA. Move the tensors to "
      "the CPU for it.");
  if (refusal.when == Refusal::Case::kIntegerProduct) return check_integer_product(arguments);
  if (refusal.when == Refusal::Case::kScaledProduct) {
    return check_scaled_product(arguments, refusal.num_out == 0 ? nullptr : &arguments.back().toTensor(),
                                chip);
  }
  if (refusal.when == Refusal::Case::kLeastSquares) {
    const auto driver = arguments[3].toOptional<c10::string_view>();
    TORCH_CHECK(!driver.has_value() || *driver == "gels",
                "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
    return;
  }
  if (refusal.when == Refusal::Case::kRows) return refuse_rows(refusal, arguments);
  const std::vector<at::Tensor> operands =
      operands_of(arguments.slice(0, arguments.size() - refusal.num_out));
  if (operands.empty()) return;
  if (refusal.when == Refusal::Case::kProduct) compare_dtypes_of_product(operands);
  if (refusal.when == Refusal::Case::kConvolution) compare_dtypes_of_convolution(operands);
  const Type type = refusal.when == Refusal::Case::kPromoted ? at::native::result_type(operands)
                                                             : operands[0].scalar_type();
  // CUDA chooses the kernel by the first batch before it looks at the second.
  if (refusal.when == Refusal::Case::kBatches && is_taken(refusal, type)) compare_dtypes_of_batches(operands);
  if (is_taken(refusal, type)) return;
  switch (refusal.when) {
    case Refusal::Case::kFilled:
    case Refusal::Case::kProduct:
    case Refusal::Case::kBatches:
      // Operands of two dtypes are another error.
      if (std::any_of(operands.begin(), operands.end(),
                      [type](const auto& own) { return own.numel() == 0 || own.scalar_type() != type; })) {
        return;
      }
      break;
    case Refusal::Case::kReduction:
      if (!is_reduced(arguments)) return;
      break;
    case Refusal::Case::kConvolution:
      // Empty inputs, and dtypes that differ, are another error or none.
      if (operands[0].numel() == 0 || operands[1].scalar_type() != type) return;
      refuse(convolution_kernel(arguments), type);
    case Refusal::Case::kTransform:
      return refuse_transform(arguments);
    case Refusal::Case::kSolver:
      if (const char* kernel = solver_kernel(refusal.kernel, operands, arguments)) refuse(kernel, type);
      return;
    case Refusal::Case::kAlways:
    case Refusal::Case::kPromoted:
    case Refusal::Case::kAbsent:
    case Refusal::Case::kIntegerProduct:
    case Refusal::Case::kScaledProduct:
    case Refusal::Case::kLeastSquares:
    case Refusal::Case::kRows:
      break;
  }
  refuse(refusal.kernel, type);
}

}  // namespace loom::glue
