// What the op table (torch_loom/ops) says of an op, generated from it: facts that a schema does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/chip.h"
#include "runtime/op_record.h"

namespace loom::glue {

namespace op_flag {
// What the runtime must know; torch_loom/ops/model.py says what each means.
#include "torch/generated/op_flags.inc"
}  // namespace op_flag

struct OpFacts {
  const char* full_name;
  runtime::ShapeClass shape_class;
  uint16_t flags;
  // It is one command only where the chip has this kernel; elsewhere its parts are commands.
  std::optional<runtime::FusedKernel> kernel = std::nullopt;

  bool has(uint16_t flag) const { return (flags & flag) != 0; }
};

// The entry of an op ("aten::add.Tensor"); an entry of defaults if the table has none.
const OpFacts& facts_of(std::string_view full_name);

// The name that a chip's description and reports have for an op of the engine.
std::string_view public_name_of(std::string_view name);

}  // namespace loom::glue
