// The schemas of loom_numerics. Formats and fidelities are the integers of torch_loom.numerics' enums; 255
// means none. Only C++ kernels: no op of this library needs Python to run.
#include "torch/core/registration.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

void define_schemas(torch::Library& m) {
  // Values of `self` in a format, along its last dimension, after `first` where that is given. The gradient
  // goes straight through, and is converted to grad_format where that is given. `op` is whom a warning names.
  m.def(
      "quantize(Tensor self, int format, int first=255, int grad_format=255, str op=\"quantize\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "quantize_(Tensor(a!) self, int format, int first=255, int grad_format=255, str op=\"quantize_\") -> "
      "()",
      {at::Tag::pt2_compliant_tag});
  m.def("quantize.out(Tensor self, int format, int first=255, *, Tensor(a!) out) -> ()",
        {at::Tag::pt2_compliant_tag});
  // Also how many values the format cannot hold and how many blocks a NaN spoiled: int64 [2].
  m.def(
      "quantize_counted(Tensor self, int format, int grad_format=255, str op=\"quantize\") -> (Tensor, "
      "Tensor)",
      {at::Tag::pt2_compliant_tag});

  // Rounds `self` to a format again into `kept`, if the bits of `self` no longer match `mark`, their hash,
  // int64 [1]: a cache that sees writes which no version counts. Never waits for the host.
  m.def("renew_(Tensor(a!) kept, Tensor(b!) mark, Tensor self, int format) -> ()",
        {at::Tag::pt2_compliant_tag});

  // uint8 [tiles, bytes of a tile], and back to float32 [shape].
  m.def("pack(Tensor self, int format) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("unpack(Tensor tiles, int format, SymInt[] shape) -> Tensor", {at::Tag::pt2_compliant_tag});

  // The part of an operand that a fidelity's products see; position 0 is SrcB, 1 is SrcA. `low`: what HiFi3's
  // second product sees.
  m.def("operand(Tensor self, int position, int fidelity, bool low=False) -> Tensor",
        {at::Tag::pt2_compliant_tag});
  // `mode`: how products are summed, see Silicon in common.h; 0: PyTorch's float32 matmul.
  m.def(
      "matmul(Tensor self, Tensor other, int fidelity, int accumulate, int mode=0, int out_format=255, "
      "int grad_format=255) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "matmul.out(Tensor self, Tensor other, int fidelity, int accumulate, int mode=0, int out_format=255, "
      "*, "
      "Tensor(a!) out) -> ()",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear(Tensor self, Tensor weight, Tensor? bias, int fidelity, int accumulate, int out_format=255, "
      "int "
      "grad_format=255) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "convolution(Tensor self, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] "
      "dilation, bool transposed, SymInt[] output_padding, SymInt groups, int fidelity, int accumulate, int "
      "out_format=255, int grad_format=255) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "convolution_backward(Tensor grad, Tensor self, Tensor weight, SymInt[] stride, SymInt[] padding, "
      "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, int fidelity, int "
      "accumulate, bool[2] output_mask) -> (Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});

  // That of fast products where another is asked for.
  m.def("_fast_fidelity(int fidelity, int accumulate) -> int");
  // Totals of quantize_counted()'s counts over the process.
  m.def("_totals(bool reset) -> int[]");
  // For tests: the kernels of an instruction set; "" is the best. False: the processor lacks it.
  m.def("_use_kernels(str name) -> bool");
  m.def("_kernels() -> str");
}

}  // namespace

void register_ops() {
  static const bool is_done = [] {
    // As all libraries here, it lives as long as the process.
    auto* const library = new torch::Library(torch::Library::DEF, kLibrary, std::nullopt, __FILE__, __LINE__);
    define_schemas(*library);
    define_elements(*library);
    define_instructions(*library);
    define_tensor_cores(*library);
    register_conversions();
    register_packing();
    register_products();
    register_product_shapes();
    register_elements();
    register_formulas();
    register_instructions();
    register_tensor_cores();
    return true;
  }();
  static_cast<void>(is_done);
}

}  // namespace loom::numerics::glue
