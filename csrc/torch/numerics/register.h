// What this room registers, a function for each file. The ops are registered with PyTorch when
// torch_loom.numerics is first imported.
#pragma once

#include <torch/library.h>

namespace loom::numerics::glue {

inline constexpr const char* kLibrary = "loom_numerics";

// All of them; a second call does nothing.
void register_ops();

void register_conversions();
void register_packing();
void register_products();
void register_product_shapes();
void register_formulas();
void define_elements(torch::Library& m);
void register_elements();
void define_instructions(torch::Library& m);
void register_instructions();
void define_tensor_cores(torch::Library& m);
void register_tensor_cores();

}  // namespace loom::numerics::glue
