// What this room registers (bindings/registration.cpp), a function for each file.
#pragma once

namespace loom::glue {

void register_factories();
void register_views();
void register_copies();
void register_random();
void register_fused_attention();
void register_attention();
void register_attention_by_time();
void register_attention_dropout();
void register_packed_attention();
void register_recurrent_cells();
void register_sync_batch_norm();
void register_optimizers();
void register_linear();
void register_lists();
void register_windows();
void register_rms_norm();
void register_scaled_grouped();
void register_semi_structured();
void register_sparse();
void register_sparse_csr();
void register_nested_attention();
// After the kernels of nested tensors that are ours.
void register_nested();
void register_quantized();
void register_lazy_ops();
void register_autocast();
// The ops that borrow without the stack (hot_ops.cpp).
void register_unboxed();
// The boxed kernel for every op of the engine that has no kernel here yet. By name, because PyTorch would
// prefer composite kernels of its own to the fallback. Call it last.
void register_boxed();

}  // namespace loom::glue
