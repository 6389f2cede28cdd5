#include "torch/native_ops.h"

#include <unordered_set>

namespace loom::glue {

bool is_native_op(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "empty",
      "empty_strided",
      "_efficientzerotensor",
      "resize_",
      "set_",
      "as_strided",
      "view",
      "_reshape_alias",
      "unfold",
      "view_as_real",
      "view_as_complex",
      "copy_",
      "_copy_from",
      "_copy_from_and_resize",
      "_local_scalar_dense",
      "native_dropout",
      "_fused_sdp_choice",
      "_pack_padded_sequence",
      "_has_compatible_shallow_copy_type",
      "record_stream",
      "is_pinned",
      "_pin_memory",
      "_lazy_clone",
  };
  return names.count(name) != 0;
}

}  // namespace loom::glue
