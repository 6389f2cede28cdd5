#include "torch/engine/own_kernels.h"

#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<at::Tensor>;

// LAPACK's kernel writes beyond its memory where a value is no number.
Tensors check_finite(Arguments arguments) {
  if (arguments[0].toTensor().is_meta()) return {};
  TORCH_CHECK(at::isfinite(arguments[0].toTensor()).all().item<bool>(),
              "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
  return {};
}

// A factor with a zero on its diagonal: no error on CUDA.
Tensors invert_singular(Arguments arguments) {
  const at::Tensor& factor = arguments[0].toTensor();
  if (factor.is_meta() || factor.dim() < 2 || factor.size(-1) != factor.size(-2))
    return {};  // the engine says what is wrong
  if (!factor.diagonal(0, -2, -1).eq(0).any().item<bool>()) return {};
  const at::Tensor unit = at::eye(factor.size(-1), factor.options()).expand_as(factor);
  return {at::cholesky_solve(unit, factor, arguments[1].toBool())};
}

// cuBLAS has the tanh approximation only.
Tensors addmm_with_gelu(Arguments arguments) {
  if (!arguments[5].toBool()) return {};
  const at::Tensor sum = at::addmm(arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toTensor(),
                                   arguments[3].toScalar(), arguments[4].toScalar());
  return {at::gelu(sum, "tanh")};
}

// CUDA has no other driver, and takes it where none is named.
Tensors solve_least_squares(Arguments arguments) {
  if (!arguments[3].isNone()) return {};
  auto [solution, residuals, rank, singular_values] = at::linalg_lstsq(
      arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toOptional<double>(), "gels");
  return {solution, residuals, rank, singular_values};
}

// Its drivers are ways to the same result.
Tensors decompose_by_driver(Arguments arguments) {
  const auto driver = arguments[3].toOptional<c10::string_view>();
  if (!driver.has_value()) return {};
  TORCH_CHECK(*driver == "gesvd" || *driver == "gesvdj" || *driver == "gesvda",
              "torch.linalg.svd: unknown svd driver ", *driver, " in svd_cusolver computation. ",
              "Use gesvd, gesvdj or gesvda");
  auto [u, s, vh] = at::_linalg_svd(arguments[0].toTensor(), arguments[1].toBool(), arguments[2].toBool());
  return {u, s, vh};
}

// LU factors without row exchanges, both in one matrix in column-major order, and for each matrix the number,
// from 1, of the first pivot that is zero, else 0.
std::pair<at::Tensor, at::Tensor> factor_in_place_order(const at::Tensor& matrices) {
  const c10::ScalarType dtype = matrices.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat ||
                                  dtype == at::kComplexDouble,
                              "\"lu_factor_cusolver\" not implemented for '", dtype, "'");
  at::Tensor lu = at::empty_like(matrices.mT(), at::MemoryFormat::Contiguous).mT();
  lu.copy_(matrices);
  const int64_t rows = lu.size(-2), columns = lu.size(-1), num_pivots = std::min(rows, columns);
  const auto batch = lu.sizes().slice(0, lu.dim() - 2);
  at::Tensor info = at::zeros(batch, lu.options().dtype(at::kInt));
  for (int64_t k = 0; k < num_pivots; ++k) {
    const at::Tensor pivot = lu.narrow(-2, k, 1).narrow(-1, k, 1);
    const at::Tensor is_zero = pivot.squeeze(-1).squeeze(-1).eq(0);
    info = at::where(is_zero.logical_and(info.eq(0)), static_cast<int>(k + 1), info);
    if (k + 1 == rows) break;
    at::Tensor below = lu.narrow(-2, k + 1, rows - k - 1).narrow(-1, k, 1);
    below.div_(at::where(pivot.eq(0), 1, pivot));  // as LAPACK: what is below stays
    if (k + 1 == columns) continue;
    lu.narrow(-2, k + 1, rows - k - 1)
        .narrow(-1, k + 1, columns - k - 1)
        .sub_(below.mul(lu.narrow(-2, k, 1).narrow(-1, k + 1, columns - k - 1)));
  }
  return {lu, info.to(at::kInt)};
}

Tensors factor_without_pivoting(Arguments arguments) {
  if (arguments[1].toBool()) return {};
  const at::Tensor& matrices = arguments[0].toTensor();
  const auto [lu, info] = factor_in_place_order(matrices);
  const int64_t num_pivots = std::min(matrices.size(-2), matrices.size(-1));
  std::vector<int64_t> sizes = matrices.sizes().vec();
  sizes.pop_back();
  sizes.back() = num_pivots;
  const at::Tensor pivots = at::arange(1, num_pivots + 1, lu.options().dtype(at::kInt)).expand(sizes);
  if (arguments[2].toBool()) at::_linalg_check_errors(info, "torch.linalg.lu_factor_ex", info.dim() == 0);
  return {lu, pivots.contiguous(), info};
}

Tensors decompose_without_pivoting(Arguments arguments) {
  if (arguments[1].toBool()) return {};
  const at::Tensor& matrices = arguments[0].toTensor();
  const at::Tensor lu = factor_in_place_order(matrices).first;
  const int64_t rows = lu.size(-2), columns = lu.size(-1), num_pivots = std::min(rows, columns);
  at::Tensor lower = lu.narrow(-1, 0, num_pivots).tril(-1);
  lower.diagonal(0, -2, -1).fill_(1);
  return {at::empty({0}, lu.options()), lower, lu.narrow(-2, 0, num_pivots).triu()};
}

struct Entry {
  std::string_view name;
  OwnKernel kernel;
  bool is_cudas;  // under any other name of the device the engine's is right
};
constexpr Entry kEntries[] = {
    {"aten::_addmm_activation", addmm_with_gelu, true},
    {"aten::_linalg_eigvals", check_finite, false},
    {"aten::_linalg_svd", decompose_by_driver, true},
    {"aten::cholesky_inverse", invert_singular, true},
    {"aten::linalg_eigvals", check_finite, false},
    {"aten::linalg_lstsq", solve_least_squares, true},
    {"aten::linalg_lu", decompose_without_pivoting, true},
    {"aten::linalg_lu_factor_ex", factor_without_pivoting, true},
};

}  // namespace

OwnKernel own_kernel_of(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                         [&](const Entry& entry) { return entry.name == name; });
  if (found == std::end(kEntries)) return nullptr;
  return found->is_cudas && device_type() != c10::DeviceType::CUDA ? nullptr : found->kernel;
}

}  // namespace loom::glue
