// Prints what C++ reads of the op that the recipes add.
#include <cstdio>

#include "torch/ops/op_facts.h"

int main() {
  using namespace loom;
  const auto& facts = glue::facts_of("aten::_test_optional_intlist");
  const std::string_view kernel =
      facts.kernel.has_value() ? runtime::kFusedKernelNames[static_cast<size_t>(*facts.kernel)] : "none";
  std::printf("%s %d %d %.*s\n", runtime::name_of(facts.shape_class), facts.has(glue::op_flag::kHostTensors),
              facts.has(glue::op_flag::kMovesData), static_cast<int>(kernel.size()), kernel.data());
}
