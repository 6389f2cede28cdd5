// What this room registers, a function for each file.
#pragma once

namespace loom::glue {

// In order: nested ops after the kernels of nested tensors that are ours, then the hot ops that borrow
// without the stack, and last the boxed kernel for every op of the engine that has no kernel here yet. That
// goes by name, because PyTorch would prefer composite kernels of its own to the fallback.
#define LOOM_KERNELS(DO) \
  DO(autocast)           \
  DO(factories)          \
  DO(views)              \
  DO(copies)             \
  DO(random)             \
  DO(lazy_ops)           \
  DO(sparse)             \
  DO(sparse_csr)         \
  DO(recurrent_cells)    \
  DO(sync_batch_norm)    \
  DO(fused_attention)    \
  DO(attention)          \
  DO(attention_by_time)  \
  DO(attention_dropout)  \
  DO(packed_attention)   \
  DO(optimizers)         \
  DO(linear)             \
  DO(lists)              \
  DO(windows)            \
  DO(rms_norm)           \
  DO(scaled_grouped)     \
  DO(cutlass)            \
  DO(cusparselt)         \
  DO(sparse_tiles)       \
  DO(nested_attention)   \
  DO(nested)             \
  DO(quantized)          \
  DO(unboxed)            \
  DO(boxed)

#define LOOM_DECLARE(subject) void register_##subject();
LOOM_KERNELS(LOOM_DECLARE)
#undef LOOM_DECLARE

}  // namespace loom::glue
