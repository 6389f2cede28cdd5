// Single instructions of Tensix and of tensor cores, on bits in int32 tensors: what benchmarks.golden
// compares with golden models. Products run through the kernels of matmul's silicon mode.
#include <ATen/ops/empty.h>

#include "numerics/tensix/functions.h"
#include "numerics/tensix/host.h"
#include "numerics/tensix/matrix_unit.h"
#include "numerics/tensix/packer.h"
#include "numerics/tensix/unpacker.h"
#include "numerics/tensix/vector_unit.h"
#include "numerics/tensor_core/rules.h"
#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/register.h"
#include "torch/numerics/silicon.h"

namespace loom::numerics::glue {

namespace {

using tensix::Chip;
using tensix::Dst;

Chip chip_of(int64_t chip, const char* op) {
  TORCH_CHECK_VALUE(chip == 0 || chip == 1, op, ": chip is ", chip, "; allowed: 0 (Wormhole), 1 (Blackhole)");
  return static_cast<Chip>(chip);
}

Dst dst_of(int64_t dst, const char* op) {
  TORCH_CHECK_VALUE(0 <= dst && dst <= 3, op, ": dst is ", dst,
                    "; allowed: 0 (Float16_b), 1 (Float16), 2 (Float32), 3 (Int32)");
  return static_cast<Dst>(dst);
}

// Contiguous bits.
at::Tensor bits_of(const at::Tensor& tensor, const char* op) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kInt, op, ": a tensor of ", tensor.scalar_type(),
                   " where bits in int32 are due");
  return tensor.contiguous();
}

const uint32_t* words(const at::Tensor& tensor) {
  return reinterpret_cast<const uint32_t*>(tensor.const_data_ptr<int32_t>());
}

uint32_t* new_words(const at::Tensor& tensor) {
  return reinterpret_cast<uint32_t*>(tensor.mutable_data_ptr<int32_t>());
}

// [M, K] activations, [K, N] weights, words; `start` [M, N], bits of the destination.
at::Tensor tensix_matmul(const at::Tensor& self, const at::Tensor& other, const at::Tensor& start,
                         int64_t self_format, int64_t other_format, int64_t dst, int64_t chip,
                         int64_t first_pass, int64_t last_pass) {
  constexpr const char* kOp = "tensix_matmul";
  const at::Tensor b = bits_of(self, kOp), a = bits_of(other, kOp), from = bits_of(start, kOp);
  TORCH_CHECK_VALUE(b.dim() == 2 && a.dim() == 2 && from.dim() == 2 && b.size(1) == a.size(0) &&
                        from.size(0) == b.size(0) && from.size(1) == a.size(1),
                    kOp, ": shapes ", b.sizes(), ", ", a.sizes(), " and ", from.sizes(), " do not fit");
  TORCH_CHECK_VALUE(b.size(1) % tensix::kFaceDepth == 0, kOp, ": K is ", b.size(1),
                    "; allowed: multiples of 16");
  TORCH_CHECK_VALUE(0 <= first_pass && first_pass < last_pass && last_pass <= 4, kOp, ": passes ", first_pass,
                    " to ", last_pass, "; allowed: a range of 0 to 4");
  const auto unit = tensix::unit_of(other_format, self_format, dst_of(dst, kOp), chip_of(chip, kOp));
  const int64_t rows = b.size(0), depth = b.size(1), columns = a.size(1);
  at::Tensor out = at::empty({rows, columns}, from.options());
  if (unit.is_integer()) {
    const uint32_t *left = words(b), *right = words(a), *old = words(from);
    uint32_t* to = new_words(out);
    for (int64_t i = 0; i < rows * columns; ++i) {
      uint32_t sum = old[i];
      for (int64_t k = 0; k < depth; k += 2 * tensix::kFaceDepth) {
        for (int64_t pass = first_pass; pass < last_pass; ++pass) {
          for (int64_t face = k; face < std::min(depth, k + 2 * tensix::kFaceDepth);
               face += tensix::kFaceDepth) {
            sum = tensix::multiply_add(unit, static_cast<int>(pass), left + i / columns * depth + face, 1,
                                       right + face * columns + i % columns, columns, sum);
          }
        }
      }
      to[i] = sum;
    }
    return out;
  }
  const auto floats = [&](const at::Tensor& source) {
    at::Tensor values = at::empty(source.sizes(), source.options().dtype(at::kFloat));
    float* to = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < source.numel(); ++i)
      to[i] = tensix::value_of_word(unit.has_short_exponent, words(source)[i]);
    return values;
  };
  const at::Tensor left = floats(b), right = floats(a);
  at::Tensor sums = at::empty({rows, columns}, left.options());
  float* to = sums.mutable_data_ptr<float>();
  for (int64_t i = 0; i < from.numel(); ++i) to[i] = tensix::value_of(unit.dst, words(from)[i]);
  multiply_silicon({left.const_data_ptr<float>(), right.const_data_ptr<float>(), rows, depth, columns,
                    columns, 1, depth, false},
                   unit, static_cast<int>(first_pass), static_cast<int>(last_pass), to);
  for (int64_t i = 0; i < from.numel(); ++i) new_words(out)[i] = tensix::dst_of(unit.dst, to[i]);
  return out;
}

// Words of one shape, `start` the bits of the destination.
at::Tensor tensix_elementwise(const at::Tensor& self, const at::Tensor& other, const at::Tensor& start,
                              int64_t format, int64_t dst, int64_t chip, int64_t operation,
                              at::IntArrayRef passes, bool accumulates) {
  constexpr const char* kOp = "tensix_elementwise";
  const at::Tensor a = bits_of(self, kOp), b = bits_of(other, kOp), from = bits_of(start, kOp);
  TORCH_CHECK_VALUE(a.sizes() == b.sizes() && a.sizes() == from.sizes(), kOp, ": shapes ", a.sizes(), ", ",
                    b.sizes(), " and ", from.sizes(), "; allowed: one shape");
  TORCH_CHECK_VALUE(0 <= operation && operation <= 2, kOp, ": operation is ", operation,
                    "; allowed: 0 (multiply), 1 (add), 2 (subtract)");
  const auto unit = tensix::unit_of(format, format, dst_of(dst, kOp), chip_of(chip, kOp));
  at::Tensor out = at::empty(a.sizes(), a.options());
  for (int64_t i = 0; i < a.numel(); ++i) {
    uint32_t sum = words(from)[i];
    for (const int64_t pass : passes) {
      TORCH_CHECK_VALUE(0 <= pass && pass < 4, kOp, ": pass ", pass, "; allowed: 0 to 3");
      sum = tensix::elementwise(unit, static_cast<tensix::Elementwise>(operation), static_cast<int>(pass),
                                accumulates, words(a)[i], words(b)[i], sum);
    }
    new_words(out)[i] = sum;
  }
  return out;
}

// The largest of each column of [16, N] words and of `start` [N].
at::Tensor tensix_largest(const at::Tensor& self, const at::Tensor& start, int64_t format, int64_t dst,
                          int64_t chip, bool is_valid) {
  constexpr const char* kOp = "tensix_largest";
  const at::Tensor a = bits_of(self, kOp), from = bits_of(start, kOp);
  TORCH_CHECK_VALUE(a.dim() == 2 && a.size(0) == tensix::kFaceDepth && from.numel() == a.size(1), kOp,
                    ": shapes ", a.sizes(), " and ", from.sizes(), "; allowed: [16, N] and [N]");
  const auto unit = tensix::unit_of(format, format, dst_of(dst, kOp), chip_of(chip, kOp));
  TORCH_CHECK_VALUE(!unit.is_integer(), kOp, ": no rule for integers");
  at::Tensor out = at::empty({a.size(1)}, a.options());
  for (int64_t i = 0; i < a.size(1); ++i)
    new_words(out)[i] = tensix::largest(unit, words(a) + i, a.size(1), words(from)[i], is_valid);
  return out;
}

// [N, 16] bits of the destination to [N, 16] results, or [N, 17] with the exponents of blocks before them.
// `old`: what memory holds and is added to.
at::Tensor tensix_pack(const at::Tensor& self, int64_t mode, int64_t relu, int64_t threshold,
                       bool is_unsigned, bool rounds, int64_t chip, const std::optional<at::Tensor>& old) {
  constexpr const char* kOp = "tensix_pack";
  const at::Tensor values = bits_of(self, kOp);
  TORCH_CHECK_VALUE(values.dim() == 2 && values.size(1) == tensix::kPackBlock, kOp, ": shape ",
                    values.sizes(), "; allowed: [N, 16]");
  TORCH_CHECK_VALUE(0 <= relu && relu <= 3, kOp, ": relu is ", relu, "; allowed: 0 to 3");
  const tensix::PackMode how{mode,
                             static_cast<tensix::Relu>(relu),
                             static_cast<uint32_t>(threshold),
                             is_unsigned,
                             rounds,
                             chip_of(chip, kOp)};
  TORCH_CHECK_VALUE(tensix::is_known_mode(how), kOp, ": no rule for mode ", mode, " on chip ", chip);
  const bool has_blocks = tensix::packs_blocks(how);
  const int64_t count = values.size(0), width = has_blocks ? tensix::kPackBlock + 1 : tensix::kPackBlock;
  const at::Tensor before = old.has_value() ? bits_of(*old, kOp) : values;
  TORCH_CHECK_VALUE(before.sizes() == values.sizes(), kOp, ": old has shape ", before.sizes(),
                    "; allowed: ", values.sizes());
  at::Tensor out = at::empty({count, width}, values.options());
  for (int64_t i = 0; i < count; ++i) {
    uint32_t elements[tensix::kPackBlock], exponent = 0;
    tensix::pack_block(how, words(values) + i * tensix::kPackBlock, elements, exponent);
    if (old.has_value()) {
      const bool has_rule =
          tensix::add_to_memory(how, elements, words(before) + i * tensix::kPackBlock, elements);
      TORCH_CHECK_VALUE(has_rule, kOp, ": mode ", mode, " does not add to memory");
    }
    uint32_t* to = new_words(out) + i * width;
    if (has_blocks) *to++ = exponent;
    std::copy(elements, elements + tensix::kPackBlock, to);
  }
  return out;
}

at::Tensor tensix_unpack(const at::Tensor& self, const at::Tensor& exponents, int64_t from, int64_t to,
                         bool is_unsigned, bool has_four_exponent_bits, int64_t chip) {
  constexpr const char* kOp = "tensix_unpack";
  const at::Tensor values = bits_of(self, kOp), shared = bits_of(exponents, kOp);
  TORCH_CHECK_VALUE(values.sizes() == shared.sizes(), kOp, ": shapes ", values.sizes(), " and ",
                    shared.sizes(), "; allowed: one shape");
  const tensix::UnpackMode how{from, to, is_unsigned, has_four_exponent_bits, chip_of(chip, kOp)};
  TORCH_CHECK_VALUE(tensix::is_known_mode(how), kOp, ": no rule from format ", from, " to ", to, " on chip ",
                    chip);
  at::Tensor out = at::empty(values.sizes(), values.options());
  for (int64_t i = 0; i < values.numel(); ++i)
    new_words(out)[i] = tensix::unpacked(how, words(values)[i], words(shared)[i]);
  return out;
}

// [N, 16] bits of float32 to [N, 17]: exponent and elements.
at::Tensor tensix_host(const at::Tensor& self, int64_t bits, bool has_short_exponent) {
  constexpr const char* kOp = "tensix_host";
  const at::Tensor values = bits_of(self, kOp);
  TORCH_CHECK_VALUE(values.dim() == 2 && values.size(1) == tensix::kPackBlock, kOp, ": shape ",
                    values.sizes(), "; allowed: [N, 16]");
  TORCH_CHECK_VALUE(bits == 7 || bits == 3 || bits == 1, kOp, ": ", bits,
                    " magnitude bits; allowed: 7, 3, 1");
  at::Tensor out = at::empty({values.size(0), tensix::kPackBlock + 1}, values.options());
  for (int64_t i = 0; i < values.size(0); ++i) {
    uint32_t* to = new_words(out) + i * (tensix::kPackBlock + 1);
    tensix::host_block(static_cast<int>(bits), has_short_exponent, words(values) + i * tensix::kPackBlock,
                       to + 1, to[0]);
  }
  return out;
}

// [N] a, b and c.
at::Tensor tensix_multiply_add(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, int64_t chip) {
  constexpr const char* kOp = "tensix_multiply_add";
  const at::Tensor left = bits_of(a, kOp), right = bits_of(b, kOp), added = bits_of(c, kOp);
  TORCH_CHECK_VALUE(left.sizes() == right.sizes() && left.sizes() == added.sizes(), kOp, ": shapes ",
                    left.sizes(), ", ", right.sizes(), " and ", added.sizes(), "; allowed: one shape");
  at::Tensor out = at::empty(left.sizes(), left.options());
  const Chip on = chip_of(chip, kOp);
  for (int64_t i = 0; i < left.numel(); ++i)
    new_words(out)[i] = tensix::multiply_add(on, words(left)[i], words(right)[i], words(added)[i]);
  return out;
}

// Primitives of one operand: "round" (to 1, 2, 3, 6, 7), "cast", "load", "store" (1, 2, 3),
// "approximate_reciprocal".
at::Tensor tensix_vector(const at::Tensor& self, c10::string_view name, int64_t variant, int64_t chip) {
  constexpr const char* kOp = "tensix_vector";
  const at::Tensor values = bits_of(self, kOp);
  const Chip on = chip_of(chip, kOp);
  at::Tensor out = at::empty(values.sizes(), values.options());
  const auto each = [&](const auto& function) {
    for (int64_t i = 0; i < values.numel(); ++i) new_words(out)[i] = function(words(values)[i]);
  };
  const bool is_stored = variant >= 1 && variant <= 3;
  if (name == "round" && (is_stored || variant == 6 || variant == 7)) {
    each([&](uint32_t x) { return tensix::rounded(static_cast<tensix::Rounding>(variant), x); });
  } else if (name == "cast") {
    each([](uint32_t x) { return tensix::float_of_integer(x); });
  } else if (name == "load" && is_stored) {
    each([&](uint32_t x) { return tensix::loaded(static_cast<tensix::Stored>(variant), x); });
  } else if (name == "store" && is_stored) {
    each([&](uint32_t x) { return tensix::stored(static_cast<tensix::Stored>(variant), x); });
  } else if (name == "approximate_reciprocal" && on == Chip::kBlackhole) {
    each([](uint32_t x) { return tensix::approximate_reciprocal(x); });
  } else {
    TORCH_CHECK_VALUE(false, kOp, ": no rule for ", name, " of variant ", variant, " on chip ", chip);
  }
  return out;
}

// [N, 8] registers, of which the fourth is the argument.
at::Tensor tensix_lookup(const at::Tensor& self, bool has_six, int64_t chip) {
  constexpr const char* kOp = "tensix_lookup";
  const at::Tensor registers = bits_of(self, kOp);
  TORCH_CHECK_VALUE(registers.dim() == 2 && registers.size(1) == 8, kOp, ": shape ", registers.sizes(),
                    "; allowed: [N, 8]");
  const Chip on = chip_of(chip, kOp);
  at::Tensor out = at::empty({registers.size(0)}, registers.options());
  for (int64_t i = 0; i < registers.size(0); ++i) {
    const uint32_t* row = words(registers) + i * 8;
    new_words(out)[i] = tensix::looked_up(on, has_six, row, row[3]);
  }
  return out;
}

// Bits of float32 of recip 0, sqrt 1, rsqrt 2, exp 3, gelu 4, tanh 5, sigmoid 6.
at::Tensor tensix_function(const at::Tensor& self, int64_t function, bool is_wide, int64_t chip) {
  constexpr const char* kOp = "tensix_function";
  const at::Tensor values = bits_of(self, kOp);
  const Chip on = chip_of(chip, kOp);
  const auto which = static_cast<tensix::Function>(function);
  TORCH_CHECK_VALUE(0 <= function && function <= 6 && tensix::has_function(on, which), kOp,
                    ": no rule for function ", function, " on chip ", chip);
  at::Tensor out = at::empty(values.sizes(), values.options());
  for (int64_t i = 0; i < values.numel(); ++i)
    new_words(out)[i] = tensix::apply(on, which, is_wide, words(values)[i]);
  return out;
}

// [M, K] and [K, N] operands' bits, `start` [M, N] those of the sums; scales [M, K / block] and [K / block,
// N].
at::Tensor tensor_core_dot(const at::Tensor& self, const at::Tensor& other, const at::Tensor& start,
                           int64_t self_format, int64_t other_format, bool has_half_sums,
                           int64_t fraction_bits, int64_t kept_bits, int64_t step, int64_t scale,
                           int64_t scale_block, int64_t exact_group,
                           const std::optional<at::Tensor>& self_scales,
                           const std::optional<at::Tensor>& other_scales) {
  constexpr const char* kOp = "tensor_core_dot";
  const at::Tensor a = bits_of(self, kOp), b = bits_of(other, kOp), from = bits_of(start, kOp);
  TORCH_CHECK_VALUE(a.dim() == 2 && b.dim() == 2 && from.dim() == 2 && a.size(1) == b.size(0) &&
                        from.size(0) == a.size(0) && from.size(1) == b.size(1),
                    kOp, ": shapes ", a.sizes(), ", ", b.sizes(), " and ", from.sizes(), " do not fit");
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  TORCH_CHECK_VALUE(0 <= self_format && self_format <= 5 && 0 <= other_format && other_format <= 5, kOp,
                    ": formats ", self_format, " and ", other_format, "; allowed: 0 to 5");
  TORCH_CHECK_VALUE(
      step >= 1 && step <= 64 && depth % step == 0 && exact_group >= 1 && step % exact_group == 0, kOp,
      ": K is ", depth, " in steps of ", step, " and groups of ", exact_group,
      "; allowed: steps of up to 64 that divide K, and groups that divide them");
  TORCH_CHECK_VALUE(0 <= fraction_bits && fraction_bits <= 40 && 1 <= kept_bits && kept_bits <= 23, kOp, ": ",
                    fraction_bits, " fraction bits and ", kept_bits, " kept; allowed: up to 40, and 1 to 23");
  const tensor_core::Rule rule{static_cast<tensor_core::Operand>(self_format),
                               static_cast<tensor_core::Operand>(other_format),
                               has_half_sums,
                               static_cast<int>(fraction_bits),
                               static_cast<int>(kept_bits),
                               static_cast<int>(step),
                               static_cast<tensor_core::Scale>(scale),
                               static_cast<int>(scale_block),
                               static_cast<int>(exact_group)};
  at::Tensor left_scales, right_scales;
  if (scale != 0) {
    TORCH_CHECK_VALUE(scale >= 1 && scale <= 2 && scale_block >= 1 && depth % scale_block == 0 &&
                          scale_block % exact_group == 0 && self_scales.has_value() &&
                          other_scales.has_value(),
                      kOp, ": scales ", scale, " of blocks of ", scale_block,
                      "; allowed: 1 or 2, of blocks that ", "divide K, with a tensor for each operand");
    left_scales = self_scales->to(at::kByte).contiguous();
    right_scales = other_scales->to(at::kByte).contiguous();
    const int64_t blocks = depth / scale_block;
    TORCH_CHECK_VALUE(left_scales.sizes() == at::IntArrayRef({rows, blocks}) &&
                          right_scales.sizes() == at::IntArrayRef({blocks, columns}),
                      kOp, ": scales of shapes ", left_scales.sizes(), " and ", right_scales.sizes());
  }
  at::Tensor out = at::empty({rows, columns}, from.options());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const uint8_t *scales_a = nullptr, *scales_b = nullptr;
      if (scale != 0) {
        scales_a = left_scales.const_data_ptr<uint8_t>() + i * (depth / scale_block);
        scales_b = right_scales.const_data_ptr<uint8_t>() + j;
      }
      new_words(out)[i * columns + j] =
          tensor_core::dot(rule, words(a) + i * depth, 1, words(b) + j, columns, depth,
                           words(from)[i * columns + j], scales_a, 1, scales_b, columns);
    }
  }
  return out;
}

}  // namespace

void define_instructions(torch::Library& m) {
  m.def(
      "tensix_matmul(Tensor self, Tensor other, Tensor start, int self_format, int other_format, int dst, "
      "int chip, "
      "int first_pass, int last_pass) -> Tensor");
  m.def(
      "tensix_elementwise(Tensor self, Tensor other, Tensor start, int format, int dst, int chip, int "
      "operation, "
      "int[] passes, bool accumulates) -> Tensor");
  m.def("tensix_largest(Tensor self, Tensor start, int format, int dst, int chip, bool is_valid) -> Tensor");
  m.def(
      "tensix_pack(Tensor self, int mode, int relu, int threshold, bool is_unsigned, bool rounds, int chip, "
      "Tensor? "
      "old=None) -> Tensor");
  m.def(
      "tensix_unpack(Tensor self, Tensor exponents, int source, int target, bool is_unsigned, bool "
      "has_four_exponent_bits, int chip) -> Tensor");
  m.def("tensix_host(Tensor self, int bits, bool has_short_exponent) -> Tensor");
  m.def("tensix_multiply_add(Tensor a, Tensor b, Tensor c, int chip) -> Tensor");
  m.def("tensix_vector(Tensor self, str name, int variant, int chip) -> Tensor");
  m.def("tensix_lookup(Tensor self, bool has_six, int chip) -> Tensor");
  m.def("tensix_function(Tensor self, int function, bool is_wide, int chip) -> Tensor");
  m.def(
      "tensor_core_dot(Tensor self, Tensor other, Tensor start, int self_format, int other_format, bool "
      "has_half_sums, int fraction_bits, int kept_bits, int step, int scale, int scale_block, int "
      "exact_group, "
      "Tensor? self_scales=None, Tensor? other_scales=None) -> Tensor");
}

void register_instructions() {
  torch::Library& engine = loom::glue::library(loom::glue::kEngineOps, kLibrary);
  engine.impl("tensix_matmul", &tensix_matmul);
  engine.impl("tensix_elementwise", &tensix_elementwise);
  engine.impl("tensix_largest", &tensix_largest);
  engine.impl("tensix_pack", &tensix_pack);
  engine.impl("tensix_unpack", &tensix_unpack);
  engine.impl("tensix_host", &tensix_host);
  engine.impl("tensix_multiply_add", &tensix_multiply_add);
  engine.impl("tensix_vector", &tensix_vector);
  engine.impl("tensix_lookup", &tensix_lookup);
  engine.impl("tensix_function", &tensix_function);
  engine.impl("tensor_core_dot", &tensor_core_dot);
}

}  // namespace loom::numerics::glue
