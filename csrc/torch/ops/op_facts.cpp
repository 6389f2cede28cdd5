#include "torch/ops/op_facts.h"

#include <utility>

#include "util/sorted_rows.h"

namespace loom::glue {

namespace {

using runtime::FusedKernel;
using runtime::ShapeClass;

// Sorted by name.
constexpr OpFacts kFacts[] = {
#include "torch/generated/op_facts.inc"
};

constexpr std::pair<std::string_view, std::string_view> kPublicNames[] = {
#include "torch/generated/public_names.inc"
};

constexpr OpFacts kDefaults{"", ShapeClass::kBytesMoved, 0};

}  // namespace

const OpFacts& facts_of(std::string_view full_name) {
  const OpFacts* const found = find_row(kFacts, full_name);
  return found == nullptr ? kDefaults : *found;
}

std::string_view public_name_of(std::string_view name) {
  for (const auto& [own, shown] : kPublicNames) {
    if (own == name) return shown;
  }
  return name;
}

}  // namespace loom::glue
