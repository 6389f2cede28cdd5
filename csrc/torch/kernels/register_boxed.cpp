// Which ops the boxed kernel serves.
#include <torch/library.h>

#include "torch/dispatch/boxed.h"
#include "torch/ops/register_ops.h"

namespace loom::glue {

namespace {

void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_boxed(op, stack); }

// Composite ops of PyTorch that the engine runs whole, as it does for itself: their parts would be dispatched
// one by one, or call the CPU's inner loops on tensors that are not the CPU's (conj_physical_, mode.values).
constexpr std::pair<const char*, const char*> kWholeOps[] = {
    {"conj_physical_", ""},
    {"mode", "values"},
    {"_convolution", ""},
    {"_euclidean_dist", ""},
    {"stack", ""},
    {"add", "Scalar"},
    {"add_", "Scalar"},
    {"sub", "Scalar"},
    {"sub_", "Scalar"},
    {"mul", "Scalar"},
    {"mul_", "Scalar"},
    {"div", "Scalar"},
    {"div_", "Scalar"},
    {"rsub", "Scalar"},
    {"masked_fill", "Scalar"},
    {"constant_pad_nd", ""},
    {"repeat", ""},
    {"logsumexp", ""},
    {"sort", ""},
    {"kthvalue", ""},
    {"median", "dim"},
    {"nanmedian", "dim"},
    {"cummax", ""},
    {"cummin", ""},
    {"count_nonzero", ""},
    {"nan_to_num", ""},
    {"_safe_softmax", ""},
    {"index_put_", ""},
    {"linalg_lstsq", ""},
    {"cholesky_solve", ""},
    {"frexp", "Tensor"},
    {"dist", ""},
    {"binary_cross_entropy_with_logits", ""},
};

// Registers the boxed kernel under `own` for the ops of namespace aten that have none there.
class Registrar {
 public:
  explicit Registrar(c10::DispatchKey own)
      : own_(own), library_(torch::Library::IMPL, "aten", own, __FILE__, __LINE__) {}

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
  torch::Library library_;
};

}  // namespace

void register_boxed() {
  // They live as long as the process: destroying a library takes its kernels away.
  static auto* dense = new Registrar(c10::DispatchKey::PrivateUse1);
  static auto* sparse = new Registrar(c10::DispatchKey::SparsePrivateUse1);
  static auto* sparse_csr = new Registrar(c10::DispatchKey::SparseCsrPrivateUse1);
  dense->implement_all(c10::DispatchKey::CPU);
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name.rfind("aten::_foreach_", 0) == 0) dense->implement(op);
  }
  for (const auto& [name, overload] : kWholeOps) dense->implement({std::string("aten::") + name, overload});
  sparse->implement_all(c10::DispatchKey::SparseCPU);
  sparse_csr->implement_all(c10::DispatchKey::SparseCsrCPU);
}

// Ops that come later, from other libraries.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>());
}

}  // namespace loom::glue
