// What the op table (torch_loom/ops) says of an op, generated from it: facts that a schema does not say.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/op_record.h"

namespace loom::glue {

namespace op_flag {
// What the runtime must know; torch_loom/ops/model.py says what each means. tools/op_table.py writes them.
inline constexpr uint16_t kHostScalars = 1, kHostTensors = 2, kHostLists = 4, kMakesContents = 8,
                          kMovesData = 16, kNotBorrowed = 32, kSizedByNumbers = 64, kMaskCounted = 128,
                          kEngineInfers = 256, kPythonInfers = 512, kHostChecks = 1024,
                          kDividesIntegers = 2048, kEngineChecks = 4096, kHostWaits = 8192;
}  // namespace op_flag

struct OpFacts {
  const char* full_name;
  runtime::ShapeClass shape_class;
  uint16_t flags;

  bool has(uint16_t flag) const { return (flags & flag) != 0; }
};

// The entry of an op ("aten::add.Tensor"); an entry of defaults if the table has none.
const OpFacts& facts_of(std::string_view full_name);

// The name that a chip's description and reports have for an op of the engine.
std::string_view public_name_of(std::string_view name);

}  // namespace loom::glue
