// Functions of single elements as a Tensix chip computes them: sums and products by the matrix unit,
// functions by the vector unit's programs.
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <array>
#include <atomic>
#include <bit>
#include <mutex>

#include "numerics/tensix/functions.h"
#include "numerics/tensix/vector_unit.h"
#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/register.h"
#include "torch/numerics/silicon.h"

namespace loom::numerics::glue {

namespace {

constexpr int64_t kElementGrain = 1 << 14;  // elements worth a thread

tensix::Unit checked_unit(int64_t fidelity, int64_t accumulate, int64_t mode, const char* op) {
  const Precision precision(fidelity, accumulate, op);
  const Silicon silicon(mode, op);
  TORCH_CHECK_VALUE(silicon.is_on && precision.accumulate != Format::kInt32, op,
                    ": no rule for sums in format ", accumulate, " of mode ", mode,
                    "; allowed: floats in a mode of silicon");
  return unit_of(precision, silicon);
}

at::Tensor elementwise_cpu(const at::Tensor& self, const at::Tensor& other, int64_t operation,
                           int64_t fidelity, int64_t accumulate, int64_t mode) {
  constexpr const char* kOp = "elementwise";
  TORCH_CHECK_VALUE(0 <= operation && operation <= 2, kOp, ": operation is ", operation,
                    "; allowed: 0 (product), 1 (sum), 2 (difference)");
  check_floating(self, kOp);
  check_floating(other, kOp);
  const tensix::Unit unit = checked_unit(fidelity, accumulate, mode, kOp);
  const auto sizes = at::infer_size(self.sizes(), other.sizes());
  const at::Tensor left = as_floats(self).expand(sizes).contiguous();
  const at::Tensor right = as_floats(other).expand(sizes).contiguous();
  at::Tensor out = at::empty(sizes, left.options());
  tensix::Product how{};
  tensix::prepare(how, unit, 0, num_passes(static_cast<Fidelity>(fidelity)));
  const float *from = left.const_data_ptr<float>(), *with = right.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    kernels().tensix_elementwise(how, static_cast<tensix::Elementwise>(operation), from + begin, with + begin,
                                 to + begin, end - begin);
  });
  return out.to(self.scalar_type());
}

// A function over what the destination register holds.
struct Program {
  tensix::Chip chip;
  tensix::Function function;
  tensix::Dst dst;

  uint32_t operator()(uint32_t bits) const {
    const auto stored_as = dst == tensix::Dst::kFloat16_b ? tensix::Stored::kFloat16_b
                           : dst == tensix::Dst::kFloat16 ? tensix::Stored::kFloat16
                                                          : tensix::Stored::kFloat32;
    const bool is_wide = dst == tensix::Dst::kFloat32;
    return tensix::stored(stored_as, tensix::apply(chip, function, is_wide, tensix::loaded(stored_as, bits)));
  }
};

// A program's results for all values of 16 bits, of float32 for those that bfloat16 holds: kept as long as
// the process lives.
const float* results_of(const Program& program) {
  constexpr size_t kFunctions = 7, kChips = 2, kDsts = 3, kValues = 1 << 16;
  static std::array<std::atomic<const float*>, kFunctions * kChips * kDsts> tables{};
  static std::mutex mutex;
  const size_t which =
      (static_cast<size_t>(program.function) * kChips + static_cast<size_t>(program.chip)) * kDsts +
      static_cast<size_t>(program.dst);
  if (const float* table = tables[which].load(std::memory_order_acquire)) return table;
  const std::lock_guard lock(mutex);
  if (const float* table = tables[which].load(std::memory_order_relaxed)) return table;
  auto* table = new float[kValues];
  const int shift = program.dst == tensix::Dst::kFloat32 ? 16 : 0;
  for (uint32_t bits = 0; bits < kValues; ++bits)
    table[bits] = tensix::value_of(program.dst, program(bits << shift));
  tables[which].store(table, std::memory_order_release);
  return table;
}

at::Tensor function_cpu(const at::Tensor& self, int64_t function, int64_t accumulate, int64_t mode) {
  constexpr const char* kOp = "function";
  check_floating(self, kOp);
  const tensix::Unit unit = checked_unit(static_cast<int64_t>(Fidelity::kHiFi4), accumulate, mode, kOp);
  const Program program{unit.chip, static_cast<tensix::Function>(function), unit.dst};
  TORCH_CHECK_VALUE(0 <= function && function <= 6 && tensix::has_function(unit.chip, program.function), kOp,
                    ": no rule for function ", function, " on ",
                    unit.chip == tensix::Chip::kBlackhole ? "Blackhole" : "Wormhole");
  const at::Tensor values = as_floats(self);
  at::Tensor out = at::empty(self.sizes(), values.options());
  const float* table = results_of(program);
  const float* from = values.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto bits = std::bit_cast<uint32_t>(from[i]);
      if (!unit.is_wide()) {
        to[i] = table[tensix::dst_of(unit.dst, from[i])];
      } else if ((bits & 0xFFFF) == 0) {
        to[i] = table[bits >> 16];
      } else {
        to[i] = std::bit_cast<float>(program(bits));
      }
    }
  });
  return out.to(self.scalar_type());
}

at::Tensor elementwise_meta(const at::Tensor& self, const at::Tensor& other, int64_t, int64_t, int64_t,
                            int64_t) {
  check_floating(self, "elementwise");
  check_floating(other, "elementwise");
  return at::empty_symint(at::infer_size_symdimvector(self.sym_sizes(), other.sym_sizes()), self.options());
}

at::Tensor function_meta(const at::Tensor& self, int64_t, int64_t, int64_t) {
  check_floating(self, "function");
  return at::empty_symint(self.sym_sizes(), self.options());
}

}  // namespace

void define_elements(torch::Library& m) {
  // `operation`: product 0, sum 1, difference 2; the first operand is in SrcA. `mode` is one of silicon.
  m.def(
      "elementwise(Tensor self, Tensor other, int operation, int fidelity, int accumulate, int mode) -> "
      "Tensor",
      {at::Tag::pt2_compliant_tag});
  // `function`: recip 0, sqrt 1, rsqrt 2, exp 3, gelu 4, tanh 5, sigmoid 6.
  m.def("function(Tensor self, int function, int accumulate, int mode) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}

void register_elements() {
  torch::Library& engine = loom::glue::library(loom::glue::kEngineOps, kLibrary);
  engine.impl("elementwise", &elementwise_cpu);
  engine.impl("function", &function_cpu);
  torch::Library& meta = loom::glue::library(c10::DispatchKey::Meta, kLibrary);
  meta.impl("elementwise", &elementwise_meta);
  meta.impl("function", &function_meta);
}

}  // namespace loom::numerics::glue
