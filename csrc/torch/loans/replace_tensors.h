// A call's argument with other tensors in the place of its own.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace loom::glue {

// The value with `replaced(tensor)` for each tensor in it, alone or in a list; any other value as it is. Of
// an argument that was lent: the lists of TorchScript's interpreter have types of their own until then.
template <typename F>
c10::IValue with_tensors_replaced(const c10::IValue& value, F replaced) {
  if (value.isTensor()) return replaced(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replaced(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(replaced(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace loom::glue
