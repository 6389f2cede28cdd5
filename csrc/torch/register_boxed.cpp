// Which ops the boxed kernel serves.
#include <torch/library.h>

#include <unordered_set>

#include "torch/boxed.h"
#include "torch/native_ops.h"

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

bool is_served(const std::string& name) {
  return name.rfind("aten::", 0) == 0 && !is_native_op(name.substr(6));
}

}  // namespace

// Called when the extension is loaded: the fallback for any op, and by name those ops for which PyTorch would
// prefer a composite kernel of its own to the fallback.
void register_boxed(torch::Library& library, const std::vector<std::string>& taken) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::unordered_set<std::string> done(taken.begin(), taken.end());
  const auto implement = [&](const c10::OperatorName& op) {
    if (!is_served(op.name)) return;
    std::string name = op.name.substr(6);
    if (!op.overload_name.empty()) name += "." + op.overload_name;
    if (!done.insert(name).second) return;
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
  };
  for (const auto& op : dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CPU)) implement(op);
  for (const auto& op : dispatcher.getAllOpNames()) {
    if (op.name.rfind("aten::_foreach_", 0) == 0) implement(op);
  }
  for (const auto& [name, overload] : kWholeOps) implement({std::string("aten::") + name, overload});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>()); }

}  // namespace loom::glue
