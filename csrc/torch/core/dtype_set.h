// Sets of dtypes, a bit for each c10::ScalarType.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>

namespace loom::glue {

using DtypeSet = uint64_t;

// The highest bit, no dtype's, stands in every op's set: a chip that lists its ops watches it, and so has all
// of them looked at (torch/ops/fallback.h).
inline constexpr DtypeSet kAnyOp = DtypeSet{1} << 63;
// Operands of several dtypes. It stands in the sets of ops that compare them.
inline constexpr DtypeSet kMixed = DtypeSet{1} << 62;

constexpr DtypeSet with_mixed(DtypeSet used) noexcept {
  const DtypeSet types = used & ~kAnyOp;
  return (types & (types - 1)) == 0 ? used : used | kMixed;
}

constexpr DtypeSet set_of(std::initializer_list<c10::ScalarType> types) {
  DtypeSet set = 0;
  for (const c10::ScalarType type : types) set |= DtypeSet{1} << static_cast<unsigned>(type);
  return set;
}

}  // namespace loom::glue
