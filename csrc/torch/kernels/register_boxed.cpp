// Which ops the boxed kernel serves.
#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_boxed(op, stack); }

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
#include "torch/ops/generated/whole_ops.inc"
};

// Registers the boxed kernel under `own` for the ops of namespace aten that have none there.
class Registrar {
 public:
  explicit Registrar(c10::DispatchKey own) : own_(own), library_(library(own)) {}

  void implement(const c10::OperatorName& op) {
    const auto handle = c10::Dispatcher::singleton().findOp(op);
    if (!handle.has_value() || op.getNamespace() != "aten" || handle->hasKernelForDispatchKey(own_)) return;
    const std::string name = op.overload_name.empty() ? op.name : op.name + "." + op.overload_name;
    library_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
  }

  // All that the engine has kernels for under its own key.
  void implement_all(c10::DispatchKey engine) {
    for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(engine)) implement(op);
  }

 private:
  const c10::DispatchKey own_;
  torch::Library& library_;
};

}  // namespace

void register_boxed() {
  for (const char* name : {"_assert_async", "_assert_async.msg"}) {
    library(own_key()).impl(name, torch::CppFunction::makeFromBoxedFunction<&assert_async>());
  }
  Registrar dense(own_key()), sparse(sparse_key()), sparse_csr(sparse_csr_key());
  dense.implement_all(kEngineOps);
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name.rfind("aten::_foreach_", 0) == 0) dense.implement(op);
  }
  for (const auto& [name, overload] : kWholeOps) dense.implement({std::string("aten::") + name, overload});
  sparse.implement_all(kEngineSparseOps);
  sparse_csr.implement_all(kEngineSparseCsrOps);
  // Ops that come later, from other libraries.
  for (const auto key : {own_key(), sparse_key(), sparse_csr_key()}) {
    library(key, "_").fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>());
  }
}

}  // namespace loom::glue
