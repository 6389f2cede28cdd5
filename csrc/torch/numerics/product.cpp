// Products with math fidelity: masks over PyTorch's float32 matmul and convolution, or a matrix unit's sums.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>

#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"
#include "torch/numerics/silicon.h"

namespace loom::numerics::glue {

namespace {

enum class Side { kSrcB = 0, kSrcA = 1 };  // operand 0 and 1

constexpr uint32_t kWholeA = 0xFFFFC000, kHighA = 0xFFF80000, kWholeB = 0xFFFFE000, kHighB = 0xFFFE0000;

// What the only product of LoFi, HiFi2 and HiFi4, and the first product of HiFi3, sees of an operand: the sum
// of the parts that have a pass with the other operand's high part.
OperandMask mask_of(Side side, Fidelity fidelity) {
  if (side == Side::kSrcA) return {fidelity == Fidelity::kLoFi ? kHighA : kWholeA, 0};
  return {fidelity == Fidelity::kHiFi4 ? kWholeB : kHighB, 0};
}

// HiFi3's second product: A_hi · B_lo.
OperandMask second_mask_of(Side side) {
  return side == Side::kSrcA ? OperandMask{kHighA, 0} : OperandMask{kWholeB, kHighB};
}

at::Tensor masked(const at::Tensor& tensor, OperandMask mask, bool drops_nonfinite) {
  const at::Tensor values = tensor.to(at::kFloat).resolve_neg();
  // Elements in the order in which they lie, so that a transposed weight stays one.
  const at::Tensor dense = values.is_non_overlapping_and_dense() ? values : values.contiguous();
  at::Tensor out = at::empty_like(dense);
  const float* from = dense.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, dense.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
    kernels().mask(mask, drops_nonfinite, from + begin, to + begin, end - begin);
  });
  return out;
}

at::Tensor operand(const at::Tensor& tensor, Side side, Fidelity fidelity) {
  if (fidelity == Fidelity::kWhole) return tensor.to(at::kFloat);
  return masked(tensor, mask_of(side, fidelity), /*drops_nonfinite=*/false);
}

// Autocast would round the operands of the products inside to its own dtype.
using WithoutAutocast = c10::impl::ExcludeDispatchKeyGuard;

// One product of the masked operands, HiFi3's two.
template <typename Product>
at::Tensor product_of(const at::Tensor& b, const at::Tensor& a, const Precision& precision,
                      const Product& product) {
  const WithoutAutocast guard(c10::autocast_dispatch_keyset);
  const Fidelity fidelity = precision.of_fast_products();
  at::Tensor sum = product(operand(b, Side::kSrcB, fidelity), operand(a, Side::kSrcA, fidelity), true);
  if (fidelity == Fidelity::kHiFi3) {
    sum.add_(product(masked(b, second_mask_of(Side::kSrcB), true),
                     masked(a, second_mask_of(Side::kSrcA), true), false));
  }
  return sum;
}

// The result in the accumulate format, then in its own, as a tensor of the first operand's dtype.
at::Tensor finished(at::Tensor sum, Format accumulate, int64_t out_format, at::ScalarType type) {
  if (!sum.is_contiguous()) sum = sum.contiguous();
  if (out_format != kNone) {
    convert_reported(static_cast<Format>(out_format), accumulate, sum, sum, "matmul");
  } else {
    convert(accumulate, Format::kInvalid, sum, sum);
  }
  return sum.to(type);
}

void check_out_format(int64_t out_format, const char* op) {
  if (out_format != kNone) checked_format(out_format, op);
}

// Sums of integers that float32 could not hold.
at::Tensor integer_matmul(const at::Tensor& self, const at::Tensor& other, int64_t out_format) {
  const WithoutAutocast guard(c10::autocast_dispatch_keyset);
  at::Tensor sum = at::matmul(self.to(at::kDouble), other.to(at::kDouble)).to(at::kFloat);
  return finished(std::move(sum), Format::kInt32, out_format, self.scalar_type());
}

at::Tensor matmul_cpu(const at::Tensor& self, const at::Tensor& other, int64_t fidelity, int64_t accumulate,
                      int64_t mode, int64_t out_format, int64_t) {
  const Precision precision(fidelity, accumulate, "matmul");
  const Silicon silicon(mode, "matmul");
  check_floating(self, "matmul");
  check_floating(other, "matmul");
  check_out_format(out_format, "matmul");
  if (precision.accumulate == Format::kInt32) return integer_matmul(self, other, out_format);
  if (silicon.is_on) {
    at::Tensor sum = silicon_matmul(self, other, precision, silicon, out_format);
    if (out_format != kNone)
      convert_reported(static_cast<Format>(out_format), Format::kInvalid, sum, sum, "matmul");
    return sum.to(self.scalar_type());
  }
  at::Tensor sum = product_of(self, other, precision, [](const at::Tensor& b, const at::Tensor& a, bool) {
    return at::matmul(b, a);
  });
  return finished(std::move(sum), precision.accumulate, out_format, self.scalar_type());
}

void matmul_out_cpu(const at::Tensor& self, const at::Tensor& other, int64_t fidelity, int64_t accumulate,
                    int64_t mode, int64_t out_format, at::Tensor& out) {
  const at::Tensor result = matmul_cpu(self, other, fidelity, accumulate, mode, out_format, kNone);
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "matmul: out is a ", out.scalar_type(),
              " tensor, and the result is ", self.scalar_type());
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  out.copy_(result);
}

at::Tensor linear_cpu(const at::Tensor& self, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      int64_t fidelity, int64_t accumulate, int64_t out_format, int64_t) {
  const Precision precision(fidelity, accumulate, "linear");
  check_floating(self, "linear");
  check_floating(weight, "linear");
  check_out_format(out_format, "linear");
  std::optional<at::Tensor> added;
  if (bias.has_value()) added = bias->to(at::kFloat);
  // One matrix of rows: of a transposed batch PyTorch would make a product for each element of it.
  const at::Tensor rows = self.dim() > 2 ? self.contiguous() : self;
  at::Tensor sum =
      product_of(rows, weight, precision, [&](const at::Tensor& b, const at::Tensor& a, bool is_first) {
        return at::linear(b, a, is_first ? added : std::nullopt);
      });
  return finished(std::move(sum), precision.accumulate, out_format, self.scalar_type());
}

struct Window {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;
};

at::Tensor convolution_cpu(const at::Tensor& self, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                           at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                           at::IntArrayRef output_padding, int64_t groups, int64_t fidelity,
                           int64_t accumulate, int64_t out_format, int64_t) {
  const Precision precision(fidelity, accumulate, "convolution");
  check_floating(self, "convolution");
  check_floating(weight, "convolution");
  check_out_format(out_format, "convolution");
  std::optional<at::Tensor> added;
  if (bias.has_value()) added = bias->to(at::kFloat);
  at::Tensor sum =
      product_of(self, weight, precision, [&](const at::Tensor& b, const at::Tensor& a, bool is_first) {
        return at::convolution(b, a, is_first ? added : std::nullopt, stride, padding, dilation, transposed,
                               output_padding, groups);
      });
  return finished(std::move(sum), precision.accumulate, out_format, self.scalar_type());
}

// Products of the gradient by their own positions: grad (0) with the weight (1), the input (0) with grad (1).
std::tuple<at::Tensor, at::Tensor> convolution_backward_cpu(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, int64_t fidelity, int64_t accumulate, std::array<bool, 2> output_mask) {
  const Precision precision(fidelity, accumulate, "convolution_backward");
  const auto backward = [&](const at::Tensor& g, const at::Tensor& x, const at::Tensor& w,
                            std::array<bool, 3> wanted) {
    return at::convolution_backward(g, x, w, std::nullopt, stride, padding, dilation, transposed,
                                    output_padding, groups, wanted);
  };
  at::Tensor grad_input, grad_weight;
  if (output_mask[0]) {
    const at::Tensor input = self.to(at::kFloat);
    grad_input = product_of(grad, weight, precision, [&](const at::Tensor& b, const at::Tensor& a, bool) {
      return std::get<0>(backward(b, input, a, {true, false, false}));
    });
    grad_input = finished(std::move(grad_input), precision.accumulate, kNone, self.scalar_type());
  }
  if (output_mask[1]) {
    const at::Tensor kernel = weight.to(at::kFloat);
    grad_weight = product_of(self, grad, precision, [&](const at::Tensor& b, const at::Tensor& a, bool) {
      return std::get<1>(backward(a, b, kernel, {false, true, false}));
    });
    grad_weight = finished(std::move(grad_weight), precision.accumulate, kNone, weight.scalar_type());
  }
  // Every result is a tensor, so that the op has one shape whatever the mask.
  if (!grad_input.defined()) grad_input = at::empty({0}, self.options());
  if (!grad_weight.defined()) grad_weight = at::empty({0}, weight.options());
  return {std::move(grad_input), std::move(grad_weight)};
}

at::Tensor operand_cpu(const at::Tensor& self, int64_t position, int64_t fidelity, bool low) {
  const Precision precision(fidelity, static_cast<int64_t>(Format::kFloat32), "operand");
  check_floating(self, "operand");
  TORCH_CHECK_VALUE(position == 0 || position == 1, "operand: the position is 0 or 1, not ", position);
  const Side side = static_cast<Side>(position);
  if (low) return masked(self, second_mask_of(side), true).to(self.scalar_type());
  return operand(self, side, precision.fidelity).to(self.scalar_type()).clone();
}

int64_t fast_fidelity(int64_t fidelity, int64_t accumulate) {
  return static_cast<int64_t>(Precision(fidelity, accumulate, "_fast_fidelity").of_fast_products());
}

bool use_kernels_named(c10::string_view name) {
  const Kernels* wanted = name.empty() ? nullptr : kernels_named(std::string(name).c_str());
  if (wanted == nullptr && !name.empty()) return false;
  use_kernels(wanted);
  return true;
}

std::string kernels_in_use() { return kernels().name; }

}  // namespace

Silicon::Silicon(int64_t mode, const char* op)
    : is_on((mode & 1) != 0),
      is_blackhole((mode & 2) != 0),
      has_short_exponent((mode & 4) != 0),
      adds_in_memory((mode & 8) != 0),
      block_tiles(mode >> 8) {
  TORCH_CHECK_VALUE(mode == 0 || ((mode & 0xF1) == 1 && mode > 0), op, ": ", mode, " is no mode of sums");
}

Precision::Precision(int64_t fidelity_value, int64_t accumulate_value, const char* op)
    : fidelity(static_cast<Fidelity>(fidelity_value)), accumulate(static_cast<Format>(accumulate_value)) {
  constexpr std::array kFidelities = {Fidelity::kLoFi, Fidelity::kHiFi2, Fidelity::kHiFi3, Fidelity::kHiFi4,
                                      Fidelity::kWhole};
  TORCH_CHECK_VALUE(std::find(kFidelities.begin(), kFidelities.end(), fidelity) != kFidelities.end(), op,
                    ": ", fidelity_value, " is no math fidelity (LoFi 0, HiFi2 2, HiFi3 3, HiFi4 4)");
  constexpr std::array kAccumulate = {Format::kFloat32, Format::kFloat16, Format::kFloat16_b, Format::kInt32};
  TORCH_CHECK_VALUE(std::find(kAccumulate.begin(), kAccumulate.end(), accumulate) != kAccumulate.end(), op,
                    ": ", accumulate_value,
                    " is no accumulate format (Float32 0, Float16 1, Float16_b 5, Int32 8)");
  TORCH_CHECK_VALUE(accumulate != Format::kInt32 || fidelity == Fidelity::kHiFi4, op,
                    ": sums in Int32 need HiFi4");
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other, int64_t fidelity, int64_t accumulate,
                  int64_t mode) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("loom_numerics::matmul", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                                               int64_t, int64_t, int64_t)>();
  return op.call(self, other, fidelity, accumulate, mode, kNone, kNone);
}

void register_products() {
  torch::Library& engine = loom::glue::library(loom::glue::kEngineOps, kLibrary);
  engine.impl("operand", &operand_cpu);
  engine.impl("matmul", &matmul_cpu);
  engine.impl("matmul.out", &matmul_out_cpu);
  engine.impl("linear", &linear_cpu);
  engine.impl("convolution", &convolution_cpu);
  engine.impl("convolution_backward", &convolution_backward_cpu);
  torch::Library& any = loom::glue::library(c10::DispatchKey::CompositeImplicitAutograd, kLibrary);
  any.impl("_fast_fidelity", &fast_fidelity);
  any.impl("_use_kernels", &use_kernels_named);
  any.impl("_kernels", &kernels_in_use);
}

}  // namespace loom::numerics::glue
