#include "torch/cuda/solver_kernels.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace loom::glue {

namespace {

using at::Tensor;
using Operands = c10::ArrayRef<Tensor>;
using Arguments = c10::ArrayRef<c10::IValue>;

bool is_square(const Tensor& matrices) { return matrices.size(-1) == matrices.size(-2); }

int64_t count(const Tensor& matrices) {
  return c10::multiply_integers(matrices.sizes().slice(0, matrices.dim() - 2));
}

// cuBLAS takes many small square matrices at once, cuSOLVER one after the other. The limits are PyTorch's,
// for dtypes that it has none for.
const char* lu_factor(const Tensor& matrices) {
  const int64_t batch = count(matrices), size = matrices.size(-1);
  if (batch == 1 || !is_square(matrices)) return "lu_factor_cusolver";
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(batch)));
  const int64_t limit = batch == 2 ? 4400 : 5200 * batch * root;
  return size * size > limit ? "lu_factor_cusolver" : "lu_factor_cublas";
}

// LU, pivots, right-hand sides, then whether they stand on the right, and whether LU is transposed.
const char* lu_solve(Operands operands, Arguments arguments) {
  const Tensor& right = operands.back();
  if (right.dim() < 2) return nullptr;
  const bool is_left = arguments[3].toBool(), is_adjoint = arguments[4].toBool() == is_left;
  const int64_t n = operands[0].size(-1), k = right.size(is_left ? -1 : -2);
  const bool is_few = count(right) <= 2;
  constexpr const char *kCublas = "lu_solve_cublas", *kCusolver = "lu_solve_cusolver",
                       *kTriangular = "triangular_solve_cuda";
  if (n == k) return n <= 16 ? kCublas : kTriangular;
  if (n <= 8) return kCublas;
  if (n > 128) return kTriangular;
  const bool is_small = n <= 64;
  if (is_few && (is_small ? k <= 64 || is_adjoint || n <= 32 : k <= 2)) return kCusolver;
  return k <= (is_small ? 8 : 2) ? kCublas : kTriangular;
}

const char* geqrf(const Tensor& matrices) {
  const int64_t rows = matrices.size(-2);
  return rows <= 256 && count(matrices) >= std::max<int64_t>(2, rows / 16) ? "geqrf_batched_cuda"
                                                                           : "geqrf_cuda";
}

const char* svd(const Tensor& matrices, std::string_view driver) {
  if (driver == "gesvd") return "svd_cuda_gesvd";
  if (driver == "gesvda") return "svd_cuda_gesvdaStridedBatched";
  if (driver != "gesvdj") return nullptr;
  return matrices.size(-1) <= 32 && matrices.size(-2) <= 32 ? "svd_cuda_gesvdjBatched" : "svd_cuda_gesvdj";
}

// One family: which operand must be square (none: -1), and whether the op returns before its kernel
// where there are no elements.
struct Family {
  std::string_view name;
  int square;
  bool skips_empty;
  const char* (*kernel)(Operands, Arguments);
};

template <const char* (*kernel_of)(const Tensor&)>
const char* by_first(Operands operands, Arguments /*arguments*/) {
  return kernel_of(operands[0]);
}

constexpr Family kFamilies[] = {
    {"cholesky", 0, true, [](Operands, Arguments) { return "cholesky_cusolver"; }},
    {"cholesky_inverse", 0, false, [](Operands, Arguments) { return "cholesky_cuda_potri"; }},
    {"cholesky_solve", 1, false,
     [](Operands operands, Arguments) {
       return count(operands[0]) == 1 ? "cholesky_cuda_potrs" : "triangular_solve_cuda";
     }},
    {"eig", 0, false, [](Operands, Arguments) { return "linalg_eig_cuda"; }},
    {"eigh", 0, true, [](Operands, Arguments) { return "linalg_eigh_cuda"; }},
    {"geqrf", -1, false, by_first<geqrf>},
    {"ldl_factor", 0, true, [](Operands, Arguments) { return "ldl_factor_looped_cusolver"; }},
    {"ldl_solve", 0, true, [](Operands, Arguments) { return "ldl_solve_looped_cusolver"; }},
    {"lu_factor", -1, true, by_first<lu_factor>},
    {"lu_factor_square", 0, true, by_first<lu_factor>},
    {"lu_solve", 0, true, lu_solve},
    {"orgqr", -1, false, [](Operands, Arguments) { return "orgqr_cuda"; }},
    {"ormqr", -1, false, [](Operands, Arguments) { return "orgmr_cuda"; }},  // PyTorch's spelling
    {"svd", -1, true,
     [](Operands operands, Arguments arguments) {
       return svd(operands[0], arguments[3].toOptional<c10::string_view>().value_or("gesvdj"));
     }},
    {"triangular", -1, false, [](Operands, Arguments) { return "triangular_solve_cuda"; }},
};

}  // namespace

const char* solver_kernel(std::string_view name, Operands operands, Arguments arguments) {
  const auto* const family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                          [name](const Family& own) { return own.name == name; });
  TORCH_INTERNAL_ASSERT(family != std::end(kFamilies), "no family of solvers: ", std::string(name));
  const c10::ScalarType dtype = operands[0].scalar_type();
  if (std::any_of(operands.begin(), operands.end(), [dtype](const Tensor& operand) {
        const bool is_pivots = operand.scalar_type() == at::kInt;
        return !is_pivots && operand.scalar_type() != dtype;
      })) {
    return nullptr;
  }
  const auto is_matrix = [&](size_t place) { return place < operands.size() && operands[place].dim() >= 2; };
  if (!is_matrix(0)) return nullptr;
  if (family->square >= 0) {
    const auto place = static_cast<size_t>(family->square);
    if (!is_matrix(place) || !is_square(operands[place])) return nullptr;
  }
  if (family->skips_empty && operands.back().numel() == 0) return nullptr;
  return family->kernel(operands, arguments);
}

}  // namespace loom::glue
