// The plan of a call, once its arguments are lent: what a chip, a name and the program's settings make of it
// before its kernel runs.
#pragma once

#include "torch/loans/lend.h"

namespace loom::glue {

// Of a call whose key is new: the lending's plan is worked out and kept.
void make_plan(Op& op, Lending& lending);

inline const CallPlan& plan_of(Op& op, Lending& lending) {
  if (!lending.find_plan()) [[unlikely]]
    make_plan(op, lending);
  return lending.plan();
}

// For a call whose plan has rules: a fallback is counted or refused, what CUDA refuses is raised, and so is
// what is not deterministic. `is_counted`: as a fallback.
void apply_rules(Op& op, c10::ArrayRef<c10::IValue> arguments, Lending& lending, bool is_counted);

}  // namespace loom::glue
