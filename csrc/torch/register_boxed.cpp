// Which ops the boxed kernel serves.
#include <torch/library.h>

#include <unordered_set>

#include "torch/boxed.h"
#include "torch/native_ops.h"

namespace loom::glue {

namespace {

void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_boxed(op, stack); }

// Composite ops whose parts would run one by one on loom tensors: the engine runs them whole, as it does for itself.
const char* const kWholeOps[] = {"_convolution", "_euclidean_dist", "embedding_backward"};

bool is_served(const std::string& name) {
  return name.rfind("aten::", 0) == 0 && !is_native_op(name.substr(6));
}

}  // namespace

// Called when the extension is loaded: the fallback for any op, and by name those ops for which PyTorch would prefer
// a composite kernel of its own to the fallback.
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
  for (const char* name : kWholeOps) implement({std::string("aten::") + name, ""});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed>()); }

}  // namespace loom::glue
