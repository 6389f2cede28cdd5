#include "torch/dispatch/plan.h"

#include "torch/inference/infer.h"

namespace loom::glue {

namespace {

// Whether CUDA's rules look at the call: they refuse some calls with such operands, or compute them in a
// wider dtype.
bool is_asked(const Op& op, const Lending& lending) {
  return (op.asked_dtypes & with_mixed(lending.dtypes())) != 0 ||
         (op.is_refused_by_row && lending.is_by_keys());
}

}  // namespace

void make_plan(Op& op, Lending& lending) {
  const runtime::Device& device = lending.target();
  CallPlan plan;
  const bool is_watched = (lending.dtypes() & device.watched_dtypes) != 0;
  plan.has_rules = is_asked(op, lending) ||
                   (is_watched && fallback::falls_back(op.fallback_entry(), lending.dtypes(), device)) ||
                   (is_deterministic_wanted(op.alert) && !device.chip().deterministic);
  // Without arithmetic nothing is allocated.
  plan.knows_outputs = !device.runs_kernels();
  plan.is_boxed = plan.has_rules || plan.knows_outputs || must_teach(op);
  lending.set_plan(plan);
}

void apply_rules(Op& op, c10::ArrayRef<c10::IValue> arguments, Lending& lending, bool is_counted) {
  const int device = lending.device();
  if (!is_counted) fallback::check(op.fallback_entry(), lending.dtypes(), device);
  if (op.refusal != nullptr && is_asked(op, lending)) refuse_as_cuda(*op.refusal, arguments, device);
  if (is_deterministic_wanted(op.alert)) raise_alert(*op.alert, arguments, device);
}

}  // namespace loom::glue
