// The ops that run without the boxed kernel's stack: `unboxed` in the op table.
#include "torch/core/registration.h"
#include "torch/dispatch/unboxed.h"
#include "torch/kernels/register.h"
#include "torch/ops/generated/unboxed_headers.inc"

namespace loom::glue {

namespace {

template <typename At>
void register_unboxed_op(torch::Library& library) {
  std::string name = At::name + 6;  // without "aten::"
  if (At::overload_name[0] != '\0') name += std::string(".") + At::overload_name;
  library.impl(name.c_str(), torch::CppFunction(TORCH_FN((Borrowed<At>::call))));
}

}  // namespace

void register_unboxed() {
  torch::Library& own = library(own_key());
#define LOOM_UNBOXED(op) register_unboxed_op<at::_ops::op>(own);
#include "torch/ops/generated/unboxed_ops.inc"
#undef LOOM_UNBOXED
}

}  // namespace loom::glue
