// Recurrent cells. PyTorch sends the devices of other backends to the fused cells, of which the CPU has none,
// and keeps the CPU's whole-layer kernel for the CPU; both are given here, where the chip has them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "torch/core/device.h"
#include "torch/core/optional_tensor.h"
#include "torch/core/registration.h"
#include "torch/engine/fused.h"
#include "torch/kernels/fused_op.h"
#include "torch/kernels/register.h"

namespace loom::glue {

namespace {

using at::Tensor;

Tensor with_bias(const Tensor& gates, OptionalTensor bias) {
  return bias.has_value() && bias->defined() ? at::add(gates, *bias) : gates;
}

// gates: [batch, 4 · hidden] in the order input, forget, cell, output. The workspace keeps them activated.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, OptionalTensor input_bias,
                                             OptionalTensor hidden_bias) {
  const Tensor gates = with_bias(with_bias(at::add(input_gates, hidden_gates), input_bias), hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]), cell = at::tanh(parts[2]),
               out = at::sigmoid(parts[3]);
  const Tensor cy = at::add(at::mul(forget, cx), at::mul(in, cell));
  const Tensor hy = at::mul(out, at::tanh(cy));
  return {hy, cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(OptionalTensor grad_hy, OptionalTensor grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const bool has_hy = grad_hy.has_value() && grad_hy->defined(),
             has_cy = grad_cy.has_value() && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  const auto parts = workspace.chunk(4, 1);
  const Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const Tensor tanh_cy = at::tanh(cy);
  Tensor grad_cell_state = has_cy ? *grad_cy : at::zeros_like(cy);
  Tensor grad_out = at::zeros_like(out);
  if (has_hy) {
    grad_cell_state = at::add(grad_cell_state, at::tanh_backward(at::mul(*grad_hy, out), tanh_cy));
    grad_out = at::mul(*grad_hy, tanh_cy);
  }
  const Tensor grad_gates =
      at::cat({at::sigmoid_backward(at::mul(grad_cell_state, cell), in),
               at::sigmoid_backward(at::mul(grad_cell_state, cx), forget),
               at::tanh_backward(at::mul(grad_cell_state, in), cell), at::sigmoid_backward(grad_out, out)},
              1);
  return {grad_gates, at::mul(grad_cell_state, forget), has_bias ? grad_gates.sum(0) : Tensor()};
}

// gates: [batch, 3 · hidden] in the order reset, update, new. Workspace: reset, update, new, hx, hidden's
// share of new.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    OptionalTensor input_bias, OptionalTensor hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = at::sigmoid(at::add(input[0], hidden[0])),
               update = at::sigmoid(at::add(input[1], hidden[1]));
  const Tensor fresh = at::tanh(at::add(input[2], at::mul(reset, hidden[2])));
  const Tensor hy = at::add(at::mul(at::sub(hx, fresh), update), fresh);
  return {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3],
               &hidden_new = parts[4];
  const Tensor grad_new = at::tanh_backward(at::mul(grad_hy, at::rsub(update, 1)), fresh);
  const Tensor grad_update = at::sigmoid_backward(at::mul(grad_hy, at::sub(hx, fresh)), update);
  const Tensor grad_reset = at::sigmoid_backward(at::mul(grad_new, hidden_new), reset);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, at::mul(grad_new, reset)}, 1);
  return {grad_input, grad_hidden, at::mul(grad_hy, update), has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

// Whether the chip runs the layer whole: float32 LSTMs without projections.
bool runs_whole_layers(const Tensor& input, at::TensorList states, at::TensorList params, bool has_biases,
                       bool train) {
  // Compiled training is made of cells. How much the layer keeps for its gradient, only its kernel knows, and
  // the kernel is not asked while a program is traced.
  if (train && input.unsafeGetTensorImpl()->is_python_dispatch()) return false;
  if (!chip_has(runtime::FusedKernel::kRnnLayer, input) || !has_lstm_layer()) return false;
  if (input.scalar_type() != c10::kFloat || input.numel() == 0 || !has_biases) return false;
  if (states[0].sym_size(2) != states[1].sym_size(2)) return false;
  return std::all_of(params.begin(), params.end(), [&](const Tensor& p) {
    return p.device() == input.device() && p.scalar_type() == c10::kFloat;
  });
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& batch, at::TensorList states, at::TensorList params,
                                        bool has_biases, int64_t num_layers, double dropout_p, bool train,
                                        bool bidirectional, bool batch_first) {
  TORCH_CHECK(states.size() == 2, "lstm expects two hidden states");
  if (!runs_whole_layers(batch, states, params, has_biases, train)) {
    return at::native::lstm(batch, states, params, has_biases, num_layers, dropout_p, train, bidirectional,
                            batch_first);
  }
  const Tensor input = batch_first ? batch.transpose(0, 1) : batch;
  const int64_t directions = bidirectional ? 2 : 1;
  Tensor layer_input = input.contiguous();
  std::vector<Tensor> hidden, cell;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t index = layer * directions + direction;
      auto [output, hy, cy] = engine_lstm_layer(layer_input, params.slice(static_cast<size_t>(index) * 4, 4),
                                                states[0][index].contiguous(), states[1][index].contiguous(),
                                                direction == 1, num_layers, bidirectional, train);
      outputs.push_back(output);
      hidden.push_back(hy);
      cell.push_back(cy);
    }
    layer_input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout_p != 0 && train && layer < num_layers - 1)
      layer_input = at::dropout(layer_input, dropout_p, true);
  }
  const Tensor output = batch_first ? layer_input.transpose(0, 1) : layer_input;
  return {output, at::stack(hidden).view_as(states[0]), at::stack(cell).view_as(states[1])};
}

// Lengths stay on the host, and so do the batch sizes that come back.
std::tuple<Tensor, Tensor> pack_padded_sequence(const Tensor& input, const Tensor& lengths,
                                                bool batch_first) {
  TORCH_CHECK(lengths.device().is_cpu(), "'lengths' argument should be a 1D CPU int64 tensor, but got 1D ",
              lengths.device(), " ", lengths.scalar_type(), " tensor");
  TORCH_CHECK(lengths.dim() == 1 && lengths.scalar_type() == c10::kLong && lengths.numel() > 0,
              "'lengths' argument should be a 1D CPU int64 tensor with elements, but got ", lengths.dim(),
              "D ", lengths.scalar_type(), " of ", lengths.numel(), " elements");
  const Tensor host_lengths = lengths.contiguous();
  const Tensor steps = batch_first ? input.transpose(0, 1) : input;
  const auto* length = host_lengths.const_data_ptr<int64_t>();
  const int64_t batch_size = steps.size(1), num_steps = length[0];
  TORCH_CHECK(input.numel() > 0, "Cannot pack empty tensors.");
  TORCH_CHECK(lengths.size(0) == batch_size, "Expected `len(lengths)` to be equal to batch_size, but got ",
              lengths.size(0), " (batch_size=", batch_size, ")");
  for (int64_t i = 0; i < batch_size; ++i) {
    TORCH_CHECK(
        length[i] > 0,
        "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0");
    TORCH_CHECK(
        i == 0 || length[i - 1] >= length[i],
        "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
        "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if "
        "you do not need ONNX exportability.");
  }
  Tensor batch_sizes = at::empty({num_steps}, lengths.options());
  auto* sizes = batch_sizes.mutable_data_ptr<int64_t>();
  std::vector<Tensor> pieces;
  int64_t active = batch_size;
  for (int64_t step = 0; step < num_steps; ++step) {
    while (active > 0 && length[active - 1] <= step) --active;
    sizes[step] = active;
    pieces.push_back(steps[step].narrow(0, 0, active));
  }
  return {at::cat(pieces), batch_sizes};
}

}  // namespace

void register_recurrent_cells() {
  implement_fused<&lstm_cell>(
      "_thnn_fused_lstm_cell",
      "(Tensor input_gates, Tensor hidden_gates, Tensor cx, Tensor? input_bias=None, Tensor? "
      "hidden_bias=None) -> (Tensor, Tensor, Tensor)");
  implement_fused<&lstm_cell_backward>(
      "_thnn_fused_lstm_cell_backward_impl",
      "(Tensor? grad_hy, Tensor? grad_cy, Tensor cx, Tensor cy, Tensor workspace, bool has_bias) -> "
      "(Tensor, Tensor, Tensor)");
  implement_fused<&gru_cell>("_thnn_fused_gru_cell",
                             "(Tensor input_gates, Tensor hidden_gates, Tensor hx, Tensor? input_bias=None, "
                             "Tensor? hidden_bias=None) -> (Tensor, Tensor)");
  implement_fused<&gru_cell_backward>("_thnn_fused_gru_cell_backward",
                                      "(Tensor grad_hy, Tensor workspace, bool has_bias) -> (Tensor, Tensor, "
                                      "Tensor, Tensor, Tensor)");
  torch::Library& m = library(own_key());
  m.impl("lstm.input", lstm);
  m.impl("_pack_padded_sequence", pack_padded_sequence);
  // Above the gradients of its parts: a composite op is taken apart before it reaches the device.
  library(autograd_key()).impl("lstm.input", lstm);
}

}  // namespace loom::glue
