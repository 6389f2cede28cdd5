#include "torch/inference/sizes_of_values.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/loans/layouts.h"

namespace loom::glue {

namespace {

using torch::jit::Stack;
using Arguments = c10::ArrayRef<c10::IValue>;

// In the words of the engine's kernels.
void check_dtype(bool is_right, const char* kernel, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_right, '"', kernel, "\" not implemented for '", tensor.scalar_type(), "'");
}

at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) { return at::empty(sizes, like.options()); }
at::Tensor positions(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kLong));
}

std::vector<int64_t> sizes_of_nonzero(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {self.numel(), self.dim()};
}

std::vector<int64_t> sizes_of_selected(Arguments arguments) {
  const at::Tensor &self = arguments[0].toTensor(), &mask = arguments[1].toTensor();
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size(mask.sizes(), self.sizes());
  return {c10::multiply_integers(sizes)};
}

Stack nonzero(Arguments arguments) {
  return {positions(sizes_of_nonzero(arguments), arguments[0].toTensor())};
}

Stack masked_select(Arguments arguments) {
  return {empty(sizes_of_selected(arguments), arguments[0].toTensor())};
}

template <std::vector<int64_t> (*sizes_of)(Arguments)>
Stack resized(Arguments arguments) {
  const at::Tensor& out = arguments.back().toTensor();
  out.resize_(sizes_of(arguments));
  return {out};
}

// Values, the place of each element among them, and how often each is there.
Stack unique(const at::Tensor& self, std::optional<int64_t> dim, bool has_places, bool has_counts) {
  check_dtype(!self.is_complex(), "unique", self);
  const int64_t place = dim.has_value() ? at::maybe_wrap_dim(*dim, self.dim()) : 0;
  const int64_t count = dim.has_value() ? self.size(place) : self.numel();
  const at::Tensor values = dim.has_value() ? at::empty(self.sizes(), self.options()) : empty({count}, self);
  std::vector<int64_t> places{0};
  if (has_places) places = dim.has_value() ? std::vector<int64_t>{count} : self.sizes().vec();
  return {values, positions(places, self), positions({has_counts ? count : 0}, self)};
}

Stack unique_pair(Arguments arguments) {
  Stack found = unique(arguments[0].toTensor(), std::nullopt, arguments[2].toBool(), false);
  found.pop_back();
  return found;
}
Stack unique_all(Arguments arguments) {
  return unique(arguments[0].toTensor(), std::nullopt, arguments[2].toBool(), arguments[3].toBool());
}
Stack unique_dim(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[1].toInt(), arguments[3].toBool(), arguments[4].toBool());
}
Stack unique_consecutive(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[3].toOptional<int64_t>(), arguments[1].toBool(),
                arguments[2].toBool());
}
Stack unique_dim_consecutive(Arguments arguments) {
  return unique(arguments[0].toTensor(), arguments[1].toInt(), arguments[2].toBool(), arguments[3].toBool());
}

Stack repeat_interleave(Arguments arguments) {
  const at::Tensor& repeats = arguments[0].toTensor();
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  check_dtype(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeat_interleave_cpu", repeats);
  const int64_t given = arguments[1].toOptional<int64_t>().value_or(repeats.numel());
  return {empty({given}, repeats)};
}

// The largest value is read as 0: one bin.
Stack bincount(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  TORCH_CHECK(arguments[2].toInt() >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  check_dtype(at::isIntegralType(self.scalar_type(), /*includeBool=*/false), "bincount_cpu", self);
  TORCH_CHECK(!arguments[1].isTensor() ||
                  (arguments[1].toTensor().dim() == 1 && arguments[1].toTensor().numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  const int64_t bins = std::max<int64_t>(arguments[2].toInt(), self.numel() == 0 ? 0 : 1);
  if (!arguments[1].isTensor()) return {positions({bins}, self)};
  const auto dtype = arguments[1].toTensor().scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return {at::empty({bins}, self.options().dtype(dtype))};
}

// A check, and checks are supposed to pass: see note_passed().
Stack equal(Arguments arguments) {
  const at::Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor();
  return {self.sizes() == other.sizes()};
}

// Every element is there.
Stack to_coordinates(const at::Tensor& self, int64_t sparse_dim) {
  TORCH_CHECK(sparse_dim > 0 || self.dim() == 0, "sparse_dim must be >0 if dimensionality>0");
  TORCH_CHECK(sparse_dim <= self.dim(), "sparse_dim must be less than or equal to self.dim()");
  const auto sizes = self.sizes();
  const auto place = static_cast<size_t>(sparse_dim);
  std::vector<int64_t> of_values{c10::multiply_integers(sizes.slice(0, place))};
  of_values.insert(of_values.end(), sizes.begin() + sparse_dim, sizes.end());
  return {coo_over(positions({sparse_dim, of_values[0]}, self), empty(of_values, self), sizes, true)};
}

template <at::Layout layout>
Stack to_compressed(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t dense = arguments[1].toOptional<int64_t>().value_or(0), batch = self.dim() - dense - 2;
  TORCH_CHECK(dense >= 0 && batch >= 0, "to_sparse: a tensor of ", self.dim(),
              " dimensions has no rows and columns "
              "before ",
              dense, " dense ones");
  const auto sizes = self.sizes();
  const auto first = static_cast<size_t>(batch);
  const int64_t count = sizes[first] * sizes[first + 1];
  const auto with = [&](int64_t size, size_t from) {
    std::vector<int64_t> all(sizes.begin(), sizes.begin() + batch);
    all.push_back(size);
    all.insert(all.end(), sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end());
    return all;
  };
  const int64_t lines = layout == at::kSparseCsr ? sizes[first] : sizes[first + 1];
  return {compressed_over(positions(with(lines + 1, sizes.size()), self),
                          positions(with(count, sizes.size()), self), empty(with(count, first + 2), self),
                          sizes, layout)};
}

Stack to_sparse_of_dims(Arguments arguments) {
  return to_coordinates(arguments[0].toTensor(), arguments[1].toInt());
}
Stack to_sparse(Arguments arguments) {
  const at::Layout layout = arguments[1].toOptional<at::Layout>().value_or(at::kSparse);
  const int64_t dense = arguments[3].toOptional<int64_t>().value_or(0);
  const c10::IValue compressed[] = {arguments[0], dense};
  if (layout == at::kSparse)
    return to_coordinates(arguments[0].toTensor(), arguments[0].toTensor().dim() - dense);
  if (layout == at::kSparseCsr) return to_compressed<at::kSparseCsr>(compressed);
  TORCH_CHECK_NOT_IMPLEMENTED(layout == at::kSparseCsc, "to_sparse: how many blocks of layout ", layout,
                              " there are depends on values, which this device does not compute");
  return to_compressed<at::kSparseCsc>(compressed);
}

// Residuals are there where the matrix has full rank, as it is supposed to have.
Stack least_squares(Arguments arguments) {
  const at::Tensor &input = arguments[0].toTensor(), &other = arguments[1].toTensor();
  const std::string driver(arguments[3].isNone() ? "gelsy" : arguments[3].toStringView());
  TORCH_CHECK(input.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(other.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(input.scalar_type() == other.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the "
              "same dtype, but got input's dtype ",
              input.scalar_type(), " and other's dtype ", other.scalar_type());
  TORCH_CHECK(driver == "gelsy" || driver == "gels" || driver == "gelsd" || driver == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const auto batch = input.sizes().slice(0, static_cast<size_t>(input.dim() - 2));
  const int64_t m = input.size(-2), n = input.size(-1);
  const bool is_vector =
      other.dim() == 1 ||
      (input.dim() - 1 == other.dim() && other.sizes() == input.sizes().slice(0, input.sizes().size() - 1));
  TORCH_CHECK(other.size(is_vector ? -1 : -2) == m,
              "torch.linalg.lstsq: input.size(-2) should match other.size(", is_vector ? "-1)" : "-2)");
  const auto of_others = other.sizes().slice(0, other.sizes().size() - (is_vector ? 1 : 2));
  const std::vector<int64_t> common = at::infer_size(batch, of_others);
  const auto sized = [](at::IntArrayRef before, std::vector<int64_t> after) {
    after.insert(after.begin(), before.begin(), before.end());
    return after;
  };
  const std::vector<int64_t> right =
      is_vector ? std::vector<int64_t>{} : std::vector<int64_t>{other.size(-1)};
  const bool has_residuals = m > n && driver != "gelsy", has_values = driver == "gelsd" || driver == "gelss";
  const std::vector<int64_t> none{0};
  std::vector<int64_t> of_solution = sized(common, {n});
  of_solution.insert(of_solution.end(), right.begin(), right.end());
  const std::vector<int64_t> sizes[] = {of_solution, has_residuals ? sized(common, right) : none,
                                        driver == "gels" ? none : batch.vec(),
                                        has_values ? sized(batch, {std::min(m, n)}) : none};
  if (arguments.size() == 4) {
    const at::ScalarType real = c10::toRealValueType(input.scalar_type());
    return {empty(sizes[0], input), at::empty(sizes[1], input.options().dtype(real)),
            positions(sizes[2], input), at::empty(sizes[3], input.options().dtype(real))};
  }
  Stack results;
  for (size_t i = 0; i < 4; ++i) {
    results.push_back(arguments[4 + i]);
    results.back().toTensor().resize_(sizes[i]);
  }
  return results;
}

// The engine `meta` has no kernel of it. The second result says where the gradient passes.
Stack fake_quantize(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {at::empty_like(self), at::empty_like(self, self.options().dtype(at::kBool))};
}

// Nor of this one.
Stack cumulated(Arguments arguments) {
  return {at::empty_like(arguments[0].toTensor(), at::MemoryFormat::Contiguous)};
}

}  // namespace

Answer answer_of(std::string_view name) {
  static const auto* const answers = new std::unordered_map<std::string_view, Answer>{
      {"aten::nonzero", &nonzero},
      {"aten::nonzero.out", &resized<&sizes_of_nonzero>},
      {"aten::masked_select", &masked_select},
      {"aten::masked_select.out", &resized<&sizes_of_selected>},
      {"aten::_unique", &unique_pair},
      {"aten::_unique2", &unique_all},
      {"aten::unique_dim", &unique_dim},
      {"aten::unique_consecutive", &unique_consecutive},
      {"aten::unique_dim_consecutive", &unique_dim_consecutive},
      {"aten::repeat_interleave.Tensor", &repeat_interleave},
      {"aten::bincount", &bincount},
      {"aten::equal", &equal},
      {"aten::_to_sparse", &to_sparse},
      {"aten::_to_sparse.sparse_dim", &to_sparse_of_dims},
      {"aten::_to_sparse_csr", &to_compressed<at::kSparseCsr>},
      {"aten::_to_sparse_csc", &to_compressed<at::kSparseCsc>},
      {"aten::linalg_lstsq", &least_squares},
      {"aten::linalg_lstsq.out", &least_squares},
      {"aten::_logcumsumexp", &cumulated},
      {"aten::fake_quantize_per_tensor_affine_cachemask", &fake_quantize},
      {"aten::fake_quantize_per_channel_affine_cachemask", &fake_quantize},
      {"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", &fake_quantize},
  };
  const auto found = answers->find(name);
  return found == answers->end() ? nullptr : found->second;
}

}  // namespace loom::glue
