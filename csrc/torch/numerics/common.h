// What the ops of loom_numerics share. They are PyTorch ops like any other: kernels for the CPU, shape
// functions, autograd formulas; on device tensors the boxed kernel lends memory to the CPU's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <tuple>

#include "numerics/formats.h"
#include "numerics/kernels.h"

namespace loom::numerics::glue {

inline constexpr int64_t kNone = static_cast<int64_t>(Format::kInvalid);

// How a product is computed. `kWhole`: the operands are known to fit, nothing is masked.
enum class Fidelity : int64_t { kLoFi = 0, kHiFi2 = 2, kHiFi3 = 3, kHiFi4 = 4, kWhole = 255 };

struct Precision {
  Fidelity fidelity;
  Format accumulate;

  Precision(int64_t fidelity_value, int64_t accumulate_value, const char* op);

  // The fidelity of fast products. HiFi3 lacks A_lo · B_lo of HiFi4, at most 2^-11 of a product: sums of 16
  // bits round far more away, so that one product is as near to the chip as HiFi3's two.
  Fidelity of_fast_products() const {
    return fidelity == Fidelity::kHiFi3 && accumulate != Format::kFloat32 ? Fidelity::kHiFi4 : fidelity;
  }
};

// The bits of `mode`: sums as a Tensix chip's matrix unit makes them.
struct Silicon {
  bool is_on;               // 1
  bool is_blackhole;        // 2
  bool has_short_exponent;  // 4: operands of the 5-bit family
  bool adds_in_memory;      // 8: blocks of K are added where the packer writes them
  int64_t block_tiles;      // from bit 8 on: tiles of K in a block; 0: one block

  Silicon(int64_t mode, const char* op);
};

// Refuses what is no format; `Invalid` where it is not `kNone`'s way of saying that none is asked for.
Format checked_format(int64_t format, const char* op);
void check_floating(const at::Tensor& tensor, const char* op);

// A float32 tensor of the values, contiguous; the tensor itself where it is one.
at::Tensor as_floats(const at::Tensor& tensor);

// Values of contiguous float32 `in` in `format`, after `first` where that is not kInvalid, in blocks along
// the last dimension; `out` may be `in`. Uses the intra-op threads.
Counts convert(Format format, Format first, const at::Tensor& in, const at::Tensor& out);
// As convert(), and what the format cannot hold is counted and warned of once in the name of `op`.
Counts convert_reported(Format format, Format first, const at::Tensor& in, const at::Tensor& out,
                        c10::string_view op);

// Gives the warning that a kernel has left, as Python's. In threads that may wait for Python.
void give_warning();

// The dispatcher's ops, for formulas.
at::Tensor quantize(const at::Tensor& self, int64_t format, int64_t first = kNone,
                    int64_t grad_format = kNone);
at::Tensor matmul(const at::Tensor& self, const at::Tensor& other, int64_t fidelity, int64_t accumulate,
                  int64_t mode);

}  // namespace loom::numerics::glue
