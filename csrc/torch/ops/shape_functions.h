// PyTorch's C++ shape functions, `at::meta`. The dispatcher has Python ones in their place once torch is
// imported, which take the GIL and up to a millisecond.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

namespace loom::glue {

class ShapeFunction {
 public:
  using Any = void (*)();
  using Call = void (*)(Any function, torch::jit::Stack& stack);

  constexpr ShapeFunction() = default;
  constexpr ShapeFunction(Any function, Call call) : function_(function), call_(call) {}

  explicit operator bool() const { return function_ != nullptr; }
  // Takes its arguments from the end of the stack, and puts its results there.
  void operator()(torch::jit::Stack& stack) const { call_(function_, stack); }

 private:
  Any function_ = nullptr;
  Call call_ = nullptr;
};

// For tensors of the device type "meta"; none where the op has none.
ShapeFunction cpp_shape_function(std::string_view full_name);

}  // namespace loom::glue
