#include "torch/cuda/values/arithmetic.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>

#include <cmath>
#include <initializer_list>
#include <optional>

#include "torch/cuda/values/reductions.h"

namespace loom::glue {

namespace {

using at::Scalar;
using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

bool is_wide(const Tensor& tensor) {
  return is_summed(tensor.scalar_type()) && !is_narrow(tensor.scalar_type());
}

bool is_real(const Tensor& tensor) {
  return is_summed(tensor.scalar_type()) && tensor.layout() == c10::kStrided && !tensor.is_meta();
}

bool is_number_of_host(const Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

// What CUDA computes in: half precision in float32.
Tensor widened(const Tensor& tensor) {
  return is_narrow(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// The CPU's sum fuses the product with alpha, as CUDA's does.
Tensor fused_sum(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::add(widened(self), widened(other), alpha).to(self.scalar_type());
}

template <Term kTerm>
Tensor term_of(const Tensor& first, const Tensor& second) {
  return kTerm == Term::kProduct ? at::mul(widened(first), widened(second))
                                 : at::div(widened(first), widened(second));
}

template <Term kTerm>
void add_term_to(const Tensor& self, const Tensor& first, const Tensor& second, const Scalar& value) {
  if (is_narrow(self.scalar_type())) {
    self.copy_(fused_sum(self, term_of<kTerm>(first, second), value));
  } else {
    self.add_(term_of<kTerm>(first, second), value);
  }
}

// Without a factor the product itself is fused into the sum, as the CPU's kernel does.
bool is_fused_by_engine(const Tensor& self, const Scalar& value) { return is_wide(self) && value.equal(1); }

template <typename T>
[[gnu::optimize("O3", "no-math-errno")]] void take_roots(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::sqrt(from[i]);
}

// The CPU's takes them from a library whose last digit may be off.
Tensor root_of(const Tensor& self) {
  // Both lie alike; of what has gaps a copy has none, and keeps the order of dimensions.
  const bool is_dense = self.is_non_overlapping_and_dense();
  const Tensor to = is_dense ? at::empty_like(self) : self.clone();
  const Tensor& from = is_dense ? self : to;
  const auto run = [&](const auto* in, auto* out) {
    at::parallel_for(0, from.numel(), 1 << 15,
                     [&](int64_t begin, int64_t end) { take_roots(in + begin, out + begin, end - begin); });
  };
  if (self.scalar_type() == at::kDouble) {
    run(from.const_data_ptr<double>(), to.mutable_data_ptr<double>());
  } else {
    run(from.const_data_ptr<float>(), to.mutable_data_ptr<float>());
  }
  return to;
}

bool is_of(const c10::IValue& value, c10::ScalarType type) {
  return value.isTensor() && is_real(value.toTensor()) && value.toTensor().scalar_type() == type;
}

// The number of each tensor of a list: one for all, or one each; nothing where they are none of a real dtype.
std::optional<std::vector<Scalar>> numbers_of(const c10::IValue& value, size_t count) {
  std::vector<Scalar> numbers;
  if (value.isScalar()) {
    numbers.assign(count, value.toScalar());
  } else if (value.isList() && !value.isTensorList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (!each.isScalar()) return std::nullopt;
      numbers.push_back(each.toScalar());
    }
  }
  for (const Scalar& number : numbers) {
    if (number.isComplex()) return std::nullopt;
  }
  return numbers.size() == count ? std::optional(numbers) : std::nullopt;
}

// Whether these lists are of real tensors that lie beside one another: of one dtype and one shape each.
bool are_alike(std::initializer_list<const c10::IValue*> lists) {
  const Tensors first = (*lists.begin())->isTensorList() ? (*lists.begin())->toTensorVector() : Tensors();
  if (first.empty()) return false;
  for (const c10::IValue* const list : lists) {
    const Tensors own = list->isTensorList() ? list->toTensorVector() : Tensors();
    if (own.size() != first.size()) return false;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!is_of(own[i], first[0].scalar_type()) || own[i].sizes() != first[i].sizes()) return false;
    }
  }
  return true;
}

// Each tensor's own, or it in the tensor's place.
template <bool kIsInPlace, typename Compute>
Tensors each_of(const Tensors& self, Compute compute) {
  Tensors results;
  for (size_t i = 0; i < self.size(); ++i) {
    const Tensor result = compute(i);
    results.push_back(kIsInPlace ? self[i].copy_(result) : result);
  }
  return results;
}

double signed_alpha(Sum sum, const Scalar& alpha) {
  return sum == Sum::kAdded ? alpha.toDouble() : -alpha.toDouble();
}

}  // namespace

double rounded_reciprocal(double divisor, c10::ScalarType dtype) {
  const double exact = 1.0 / divisor;
  return dtype == at::kDouble ? exact : static_cast<double>(static_cast<float>(exact));
}

bool is_scaled_as_cuda(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return is_narrow(self.scalar_type()) && (is_number_of_host(other) || !alpha.equal(1));
}

template <Sum kSum>
Tensors add_scaled(Arguments arguments) {
  if (arguments.size() < 3 || !arguments[0].isTensor() || !arguments[2].isScalar()) return {};
  const Tensor& self = arguments[0].toTensor();
  const Scalar alpha = arguments[2].toScalar();
  if (!is_real(self) || !is_narrow(self.scalar_type()) || is_number_of_host(self) || alpha.isComplex())
    return {};
  const bool is_number =
      arguments[1].isScalar() || (arguments[1].isTensor() && is_number_of_host(arguments[1].toTensor()));
  if (is_number) {
    const Scalar number = arguments[1].isScalar() ? arguments[1].toScalar() : arguments[1].toTensor().item();
    if (number.isComplex()) return {};
    const Tensor wide = widened(self);
    const Tensor sum = kSum == Sum::kSubtractedFrom ? at::rsub(wide, number, alpha)
                                                    : at::add(wide, number, signed_alpha(kSum, alpha));
    return {sum.to(self.scalar_type())};
  }
  if (!is_of(arguments[1], self.scalar_type()) || alpha.equal(1)) return {};
  const Tensor& other = arguments[1].toTensor();
  const bool is_turned = kSum == Sum::kSubtractedFrom;
  return {fused_sum(is_turned ? other : self, is_turned ? self : other, signed_alpha(kSum, alpha))};
}
template Tensors add_scaled<Sum::kAdded>(Arguments);
template Tensors add_scaled<Sum::kSubtracted>(Arguments);
template Tensors add_scaled<Sum::kSubtractedFrom>(Arguments);

template <Term kTerm, bool kIsInPlace>
Tensors add_term(Arguments arguments) {
  if (arguments.size() < 4 || !arguments[0].isTensor() || !arguments[3].isScalar()) return {};
  const Tensor& self = arguments[0].toTensor();
  const Scalar value = arguments[3].toScalar();
  if (!is_real(self) || value.isComplex() || !is_of(arguments[1], self.scalar_type()) ||
      !is_of(arguments[2], self.scalar_type()))
    return {};
  const Tensor &first = arguments[1].toTensor(), &second = arguments[2].toTensor();
  // What does not fit together the engine's kernel refuses.
  if (!at::are_expandable(first.sizes(), second.sizes())) return {};
  const c10::DimVector shape = at::infer_size_dimvector(first.sizes(), second.sizes());
  if (!at::are_expandable(self.sizes(), shape)) return {};
  if (kTerm == Term::kProduct && is_fused_by_engine(self, value)) return {};
  if (!kIsInPlace) return {fused_sum(self, term_of<kTerm>(first, second), value)};
  if (!at::is_expandable_to(shape, self.sizes()) || at::has_internal_overlap(self) != at::MemOverlap::No)
    return {};
  add_term_to<kTerm>(self, first, second, value);
  return {self};
}
template Tensors add_term<Term::kProduct, false>(Arguments);
template Tensors add_term<Term::kProduct, true>(Arguments);
template Tensors add_term<Term::kQuotient, false>(Arguments);
template Tensors add_term<Term::kQuotient, true>(Arguments);

Tensors exact_root(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!is_real(self) || !is_wide(self)) return {};
  return {root_of(self)};
}

template <Sum kSum, bool kIsInPlace>
Tensors add_scaled_lists(Arguments arguments) {
  if (!are_alike({&arguments[0]})) return {};
  const Tensors self = arguments[0].toTensorVector();
  if (!is_narrow(self[0].scalar_type())) return {};
  if (arguments[1].isTensorList()) {
    if (!arguments[2].isScalar() || !are_alike({&arguments[0], &arguments[1]})) return {};
    const Tensors other = arguments[1].toTensorVector();
    const Scalar alpha = arguments[2].toScalar();
    if (alpha.isComplex()) return {};
    return each_of<kIsInPlace>(
        self, [&](size_t i) { return fused_sum(self[i], other[i], signed_alpha(kSum, alpha)); });
  }
  const auto numbers = numbers_of(arguments[1], self.size());
  if (!numbers.has_value()) return {};
  return each_of<kIsInPlace>(self, [&](size_t i) {
    return at::add(widened(self[i]), (*numbers)[i], kSum == Sum::kAdded ? 1 : -1).to(self[i].scalar_type());
  });
}
template Tensors add_scaled_lists<Sum::kAdded, false>(Arguments);
template Tensors add_scaled_lists<Sum::kAdded, true>(Arguments);
template Tensors add_scaled_lists<Sum::kSubtracted, false>(Arguments);
template Tensors add_scaled_lists<Sum::kSubtracted, true>(Arguments);

template <Term kTerm, bool kIsInPlace>
Tensors add_terms(Arguments arguments) {
  if (arguments.size() < 4 || !are_alike({&arguments[0], &arguments[1], &arguments[2]})) return {};
  const Tensors self = arguments[0].toTensorVector(), first = arguments[1].toTensorVector(),
                second = arguments[2].toTensorVector();
  const auto numbers = numbers_of(arguments[3], self.size());
  if (!numbers.has_value()) return {};
  if (kTerm == Term::kProduct && arguments[3].isScalar() && is_fused_by_engine(self[0], (*numbers)[0]))
    return {};
  Tensors results;
  for (size_t i = 0; i < self.size(); ++i) {
    if (kIsInPlace) {
      add_term_to<kTerm>(self[i], first[i], second[i], (*numbers)[i]);
      results.push_back(self[i]);
    } else {
      results.push_back(fused_sum(self[i], term_of<kTerm>(first[i], second[i]), (*numbers)[i]));
    }
  }
  return results;
}
template Tensors add_terms<Term::kProduct, false>(Arguments);
template Tensors add_terms<Term::kProduct, true>(Arguments);
template Tensors add_terms<Term::kQuotient, false>(Arguments);
template Tensors add_terms<Term::kQuotient, true>(Arguments);

template <bool kIsInPlace>
Tensors exact_roots(Arguments arguments) {
  if (!are_alike({&arguments[0]})) return {};
  const Tensors self = arguments[0].toTensorVector();
  if (!is_wide(self[0])) return {};
  return each_of<kIsInPlace>(self, [&](size_t i) { return root_of(self[i]); });
}
template Tensors exact_roots<false>(Arguments);
template Tensors exact_roots<true>(Arguments);

template <bool kIsInPlace>
Tensors multiply_lists(Arguments arguments) {
  if (!are_alike({&arguments[0]})) return {};
  const Tensors self = arguments[0].toTensorVector();
  const auto numbers = numbers_of(arguments[1], self.size());
  if (!is_narrow(self[0].scalar_type()) || !numbers.has_value()) return {};
  return each_of<kIsInPlace>(self, [&](size_t i) { return at::mul(self[i], (*numbers)[i]); });
}
template Tensors multiply_lists<false>(Arguments);
template Tensors multiply_lists<true>(Arguments);

template <bool kIsInPlace>
Tensors divide_lists(Arguments arguments) {
  // A number each is divided by itself.
  if (!arguments[1].isScalar() || arguments[1].toScalar().isComplex() || !are_alike({&arguments[0]}))
    return {};
  const Tensors self = arguments[0].toTensorVector();
  const double reciprocal = rounded_reciprocal(arguments[1].toScalar().toDouble(), self[0].scalar_type());
  return each_of<kIsInPlace>(self, [&](size_t i) { return at::mul(self[i], reciprocal); });
}
template Tensors divide_lists<false>(Arguments);
template Tensors divide_lists<true>(Arguments);

}  // namespace loom::glue
