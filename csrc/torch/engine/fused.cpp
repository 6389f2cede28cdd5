#include "torch/engine/fused.h"

#include <ATen/Context.h>
#include <ATen/ops/mkldnn_rnn_layer.h>

namespace loom::glue {

bool has_lstm_layer() { return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn(); }

std::array<at::Tensor, 3> engine_lstm_layer(const at::Tensor& input, at::TensorList weights,
                                            const at::Tensor& hx, const at::Tensor& cx, bool reverse,
                                            int64_t num_layers, bool bidirectional, bool train) {
  constexpr int64_t kLstm = 2;  // the kernel's number for this kind of cell
  auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
      input, weights[0], weights[1], weights[2], weights[3], hx, cx, reverse, {}, kLstm, hx.size(-1),
      num_layers, /*has_biases=*/true, bidirectional, /*batch_first=*/false, train);
  return {output, hy, cy};
}

}  // namespace loom::glue
