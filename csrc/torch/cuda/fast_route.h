// Ops on lists of tensors: whether CUDA computes a call by its one kernel for lists, or tensor by tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/SmallVector.h>

#include <string_view>
#include <vector>

#include "torch/core/device_type.h"

namespace loom::glue {

// Is given the arguments of a call, in their order. Holds views of the lists: it must not outlast the call.
class FastRoute {
 public:
  // "aten::_foreach_add_"
  explicit FastRoute(std::string_view op) : op_(op) {}

  void add(at::TensorList tensors) { lists_.push_back(tensors); }
  void add(const at::Scalar& scalar) {
    if (lists_.empty()) starts_with_number_ = true;
    scalars_.push_back(scalar);
  }
  void add(at::ArrayRef<at::Scalar> scalars) {
    scalars_.insert(scalars_.end(), scalars.begin(), scalars.end());
  }
  template <typename T>
  void add(const T& /*neither decides*/) {}

  // Where the chip is no GPU, or known by another name than cuda, one kernel takes every list.
  bool is_taken() const;
  // False under other names: then no route need be made.
  static bool is_asked() { return device_type() == c10::DeviceType::CUDA; }

 private:
  const std::string_view op_;
  c10::SmallVector<at::TensorList, 3> lists_;
  std::vector<at::Scalar> scalars_;
  bool starts_with_number_ = false;
};

}  // namespace loom::glue
