// Values of float32 in a format, by the rules of a chip's converters.
#pragma once

#include <cstdint>

#include "numerics/formats.h"

namespace loom::numerics::tensix {

// Rows of `columns` values, whose blocks lie along them; `out` may be `in`. The format has the rule.
// `is_wide`: the packer's source holds float32, else 16 bits, to which values are rounded first, halves away
// from zero.
void convert(Format format, Rule rule, bool is_wide, const float* in, float* out, int64_t rows,
             int64_t columns, Counts& counts);

}  // namespace loom::numerics::tensix
