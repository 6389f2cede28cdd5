// What is known of an op wherever its name would be passed: one interned record an op, for as long as the
// process lives. Two ops are the same when their records are, and `id` indexes any table of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace loom::runtime {

// How an op's cost follows from its operands (torch_loom/ops). kBytesMoved is the default: what it reads and
// writes, and no arithmetic that matters.
enum class ShapeClass : uint8_t {
#define LOOM_SHAPE_CLASS(enumerator, name) enumerator,
#include "runtime/generated/shape_classes.inc"
#undef LOOM_SHAPE_CLASS
};

inline constexpr const char* kShapeClassNames[] = {
#define LOOM_SHAPE_CLASS(enumerator, name) name,
#include "runtime/generated/shape_classes.inc"
#undef LOOM_SHAPE_CLASS
};
inline constexpr size_t kNumShapeClasses = std::size(kShapeClassNames);

// "elementwise", "gather_scatter", …: the names that torch_loom/ops uses.
inline const char* name_of(ShapeClass shape_class) noexcept {
  return kShapeClassNames[static_cast<size_t>(shape_class)];
}

struct OpRecord {
  uint32_t id;  // from 1, without gaps, in the order of first use
  ShapeClass shape_class;
  const char* name;       // "aten::add"
  const char* overload;   // "Tensor"; empty: it has none
  const char* full_name;  // "aten::add.Tensor": what commands are called
};

// The record of an op. The first call for a name makes it, and its class stays. Takes a lock: keep the
// reference.
const OpRecord& intern_op(std::string_view name, std::string_view overload = {},
                          ShapeClass shape_class = ShapeClass::kBytesMoved);

// The record that has the id, or null.
const OpRecord* find_op(uint32_t id);

}  // namespace loom::runtime
