// What a chip, a name and the program's settings make of a call before its kernel runs: a fallback is counted
// or refused, what CUDA refuses is raised, and so is what is not deterministic.
#pragma once

#include "torch/cuda/alerts.h"
#include "torch/loans/lend.h"
#include "torch/ops/fallback.h"
#include "torch/ops/op.h"

namespace loom::glue {

// Whether there is a rule for operands of these dtypes: seldom.
inline bool has_rules(const Op& op, DtypeSet dtypes) {
  return fallback::is_watched(dtypes) || (op.asked_dtypes & with_mixed(dtypes)) != 0 ||
         is_deterministic_wanted(op.alert);
}

// Applies them to lent arguments. True: the engine has no kernel for the dtype, and computes in a wider one.
// `is_counted`: as a fallback.
bool apply_rules(Op& op, c10::ArrayRef<c10::IValue> arguments, Lending& lending, bool is_counted = false);

}  // namespace loom::glue
