#include "torch/dispatch/rules.h"

#include "torch/ops/engine_call.h"

namespace loom::glue {

bool apply_rules(Op& op, c10::ArrayRef<c10::IValue> arguments, Lending& lending, bool is_counted) {
  const DtypeSet dtypes = lending.dtypes();
  const int device = lending.device();
  if (fallback::is_watched(dtypes) && !is_counted) fallback::check(op.fallback_entry(), dtypes, device);
  const bool is_asked = (op.asked_dtypes & with_mixed(dtypes)) != 0 || op.is_refused_by_row;
  const bool is_widened = is_asked && refuse_or_widen(op, arguments, device);
  if (is_deterministic_wanted(op.alert)) raise_alert(*op.alert, arguments, device);
  return is_widened;
}

}  // namespace loom::glue
