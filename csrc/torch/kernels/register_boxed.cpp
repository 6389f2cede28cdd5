// Which ops the boxed kernel serves.
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/kernels/register.h"
#include "torch/kernels/registrar.h"

namespace loom::glue {

namespace {

// The kernel may be queued, but how many values there are is known at the call.
void assert_async(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const int64_t count = (*stack)[stack->size() - op.schema().arguments().size()].toTensor().numel();
  TORCH_CHECK(count != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(count == 1, "Boolean value of Tensor with more than one value is ambiguous");
  run_boxed(op, stack);
}

// Composite ops of PyTorch that the engine runs whole, as it does for itself (`borrows_whole` in the op
// table): their parts would be dispatched one by one, or call the CPU's inner loops on tensors that are not
// the CPU's (conj_physical_, mode.values).
constexpr std::pair<const char*, const char*> kWholeOps[] = {
#include "torch/generated/whole_ops.inc"
};

c10::KernelFunction boxed(std::string_view /*op*/) {
  return c10::KernelFunction::makeFromBoxedFunction<&run_boxed>();
}

void register_boxed_ops() {
  Registrar dense(own_key(), boxed), sparse(sparse_key(), boxed), sparse_csr(sparse_csr_key(), boxed);
  dense.implement_all(kEngineOps);
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name.rfind("aten::_foreach_", 0) == 0) dense.implement(op);
  }
  for (const auto& [name, overload] : kWholeOps) dense.implement({std::string("aten::") + name, overload});
  sparse.implement_all(kEngineSparseOps);
  sparse_csr.implement_all(kEngineSparseCsrOps);
  for (const auto key : {sparse_key(), sparse_csr_key()}) fall_back(key, boxed({}));
}

}  // namespace

void register_boxed() {
  for (const char* name : {"_assert_async", "_assert_async.msg"}) {
    library(own_key()).impl(name, torch::CppFunction::makeFromBoxedFunction<&assert_async>());
  }
  // Ops that come later, from other libraries, and the first op on a device, if it makes a tensor.
  fall_back(own_key(), boxed({}));
  at_first_use(register_boxed_ops);
}

}  // namespace loom::glue
