#include "torch/engine/lacking_kernels.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>

#include <vector>

namespace loom::glue {

namespace {

// In whole numbers, as CUDA counts them: a value on the border of two bins belongs to the upper one.
// Floating-point numbers cannot decide that for every border.
at::Tensor count_integers(const at::Tensor& values, int64_t bins, const c10::Scalar& min,
                          const c10::Scalar& max) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  auto from = min.to<int64_t>(), to = max.to<int64_t>();
  at::Tensor wide = values.to(at::kLong).flatten();
  if (from == to && wide.numel() > 0) {
    const auto [least, greatest] = at::aminmax(wide);
    from = least.item<int64_t>(), to = greatest.item<int64_t>();
  }
  if (from == to) --from, ++to;
  TORCH_CHECK(from < to, "max must be larger than min");
  wide = wide.masked_select(wide.ge(from).logical_and_(wide.le(to)));
  const at::Tensor places = wide.sub(from).mul_(bins).floor_divide_(to - from).clamp_max_(bins - 1);
  return at::bincount(places, {}, bins).to(values.scalar_type());
}

}  // namespace

std::optional<at::Tensor> compute_of_parts(std::string_view op, c10::ArrayRef<c10::IValue> arguments) {
  const auto values = [&]() -> const at::Tensor& { return arguments[0].toTensor(); };
  if (op == "aten::histc") {
    return count_integers(values(), arguments[1].toInt(), arguments[2].toScalar(), arguments[3].toScalar());
  }
  if (op == "aten::nansum") {
    const auto dims = arguments[1].isNone() ? std::vector<int64_t>() : arguments[1].toIntVector();
    const at::Tensor wide =
        values().scalar_type() == at::kComplexHalf ? values().to(at::kComplexFloat) : values();
    return at::sum(wide.masked_fill(at::isnan(wide), 0), at::IntArrayRef(dims), arguments[2].toBool())
        .to(arguments[3].toOptional<at::ScalarType>().value_or(values().scalar_type()));
  }
  return std::nullopt;
}

}  // namespace loom::glue
