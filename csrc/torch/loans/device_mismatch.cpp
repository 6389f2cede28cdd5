#include "torch/loans/device_mismatch.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "runtime/worlds.h"
#include "torch/core/device_type.h"
#include "torch/engine/engine.h"

namespace loom::glue {

namespace {

// PyTorch makes embedding of index_select, which checks.
bool is_embedding(const Op& op) { return op.handle.operator_name().name == "aten::embedding"; }

bool is_checked_in_parts(const Op& op) {
  return op.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op.handle.hasKernelForDispatchKey(kEngineOps) && !is_embedding(op);
}

// What PyTorch's generated code calls the kernel of an op.
std::string wrapper_of(const Op& op) {
  if (is_embedding(op)) return "wrapper_CUDA__index_select";
  const c10::OperatorName& own = op.handle.operator_name();
  const auto& arguments = op.handle.schema().arguments();
  const bool has_out = !arguments.empty() && arguments.back().is_out();
  const std::string name = own.name.substr(own.name.find("::") + 2) + (has_out ? "_out" : "");
  const bool is_structured = static_cast<bool>(op.shape_function());
  if (!is_structured) return "wrapper_CUDA_" + own.overload_name + "_" + name;
  return "wrapper_CUDA_" + name + (own.overload_name.empty() ? "" : "_" + own.overload_name);
}

// Of an operand, or of the alias that has been lent in its place.
c10::Device operand_device(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.has_storage()) return tensor.device();
  const runtime::Place place = runtime::locate(tensor.storage().data());
  if (place.device == nullptr) return tensor.device();
  return {device_type(), static_cast<c10::DeviceIndex>(place.device->logical)};
}

// The device of the previous operands, and the check of the next operand.
class CommonDevice {
 public:
  explicit CommonDevice(const Op& op) : op_(op) {}

  void check(const c10::IValue& value, const std::string& name) {
    if (value.isTensor()) {
      check(value.toTensor(), name);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) check(element.toTensor(), name);
      }
    }
  }

 private:
  void check(const at::Tensor& tensor, const std::string& name) {
    if (!tensor.defined()) return;
    const c10::Device own = operand_device(tensor);
    if (!device_.has_value()) device_ = own;
    TORCH_CHECK(own == *device_, "Expected all tensors to be on the same device, but got ", name, " is on ",
                own, ", different from other tensors on ", *device_, " (when checking argument in method ",
                wrapper_of(op_), ")");
  }

  const Op& op_;
  std::optional<c10::Device> device_;
};

// Results first, as PyTorch checks them.
void check_arguments(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& schema = op.handle.schema().arguments();
  CommonDevice common(op);
  for (const bool is_out : {true, false}) {
    for (const Argument& argument : op.arguments) {
      if (schema[argument.index].is_out() != is_out) continue;
      const std::string& name = schema[argument.index].name();
      common.check(arguments[argument.index], is_embedding(op) && name == "indices" ? "index" : name);
    }
  }
}

std::string type_of(const at::Tensor& tensor) {
  const std::string name = c10::toString(tensor.scalar_type());
  return (operand_device(tensor).is_cpu() ? "torch." : "torch.cuda.") + name + "Tensor";
}

// input, weight, bias: compared by type and device at once. Two GPUs are another error of CUDA's.
void check_convolution(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const bool is_host = operand_device(input).is_cpu();
  for (const size_t i : {1, 2}) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& other = arguments[i].toTensor();
    const std::string name = i == 1 ? "weight" : "bias";
    TORCH_CHECK(operand_device(other).is_cpu() == is_host, "Input type (", type_of(input), ") and ", name,
                " type (", type_of(other), ") should be the same",
                is_host ? " or input should be a MKLDNN tensor and " + name + " is a dense tensor" : "");
  }
}

// What is indexed, its indices: these may be the host's, too.
void check_indices(c10::ArrayRef<c10::IValue> arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isList()) return;
  const c10::Device indexed = operand_device(arguments[0].toTensor());
  for (const c10::IValue& index : arguments[1].toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const c10::Device own = operand_device(index.toTensor());
    TORCH_CHECK(own.is_cpu() || own == indexed,
                "indices should be either on cpu or on the same device as the indexed tensor (", indexed,
                ")");
  }
}

}  // namespace

void raise_mismatch(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  if (device_type() == c10::DeviceType::CUDA && op.policy.host_lists) check_indices(arguments);
  if (device_type() != c10::DeviceType::CUDA || op.policy.host_tensors || op.policy.host_lists) throw;
  const std::string& name = op.handle.operator_name().name;
  if (name == "aten::convolution" || name == "aten::_convolution") {
    check_convolution(arguments);
  } else if (!op.policy.host_scalars && !is_checked_in_parts(op) && name.rfind("aten::", 0) == 0) {
    check_arguments(op, arguments);
  }
  throw;
}

}  // namespace loom::glue
