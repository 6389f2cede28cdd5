// What this room registers, a function for each file. The ops are registered with PyTorch when
// torch_loom.numerics is first imported.
#pragma once

namespace loom::numerics::glue {

inline constexpr const char* kLibrary = "loom_numerics";

// All of them; a second call does nothing.
void register_ops();

void register_conversions();
void register_packing();
void register_products();
void register_product_shapes();
void register_formulas();

}  // namespace loom::numerics::glue
