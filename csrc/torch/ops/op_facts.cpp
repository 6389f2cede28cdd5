#include "torch/ops/op_facts.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace loom::glue {

namespace {

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
  const auto* const found =
      std::lower_bound(std::begin(kFacts), std::end(kFacts), full_name,
                       [](const OpFacts& facts, std::string_view name) { return facts.full_name < name; });
  return found != std::end(kFacts) && found->full_name == full_name ? *found : kDefaults;
}

std::string_view public_name_of(std::string_view name) {
  for (const auto& [own, shown] : kPublicNames) {
    if (own == name) return shown;
  }
  return name;
}

}  // namespace loom::glue
