#include "torch/cuda/values/reductions.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "torch/core/device.h"
#include "torch/cuda/values/fused_loops.h"
#include "torch/cuda/values/reduction_threads.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

constexpr int64_t kVector = 4, kNarrowVector = 8, kPair = 2;  // elements of a load; of 16 bits; of moments
constexpr int64_t kMostElements = int64_t{1} << 31;           // more are split into several kernels
constexpr int64_t kColumns = 64;                              // results that are computed side by side

// An operation has an accumulator, `identity`, `add` for an element and `combine` for two accumulators, and
// says how many accumulators a thread has (kAccumulators). It may have `add_all`, of neighbours.
template <typename T, typename Combine>
struct Fold {
  using Accumulator = T;
  static constexpr int64_t kAccumulators = kUnroll;
  T identity;

  T add(T sum, T element) const { return Combine()(sum, element); }
  T combine(T first, T second) const { return Combine()(first, second); }
};

// Sums of a norm: how many are not zero, of magnitudes, or of squares, which are fused into the sum.
template <typename T, int kPower>
struct Powers {
  using Accumulator = T;
  static constexpr int64_t kAccumulators = kUnroll;
  T identity{0};

  T add(T sum, T element) const {
    if constexpr (kPower == 0) return sum + (element == T(0) ? T(0) : T(1));
    if constexpr (kPower == 1) return sum + std::abs(element);
    if constexpr (kPower == 2) return std::fma(element, element, sum);
  }
  T combine(T first, T second) const { return first + second; }

  void add_all(T* sums, const T* elements, int64_t count) const
    requires(kPower == 2)
  {
    add_squares(sums, elements, count);
  }
};

// Welford's mean and sum of squared distances from it.
template <typename T>
struct Moments {
  struct Accumulator {
    T mean, squares, count;
  };
  static constexpr int64_t kAccumulators = 2;
  Accumulator identity{0, 0, 0};

  Accumulator add(const Accumulator& old, T element) const {
    const T delta = element - old.mean, count = old.count + 1, mean = old.mean + delta / count;
    return {mean, std::fma(delta, element - mean, old.squares), count};
  }
  Accumulator combine(const Accumulator& first, const Accumulator& second) const {
    if (first.count == 0) return second;
    if (second.count == 0) return first;
    const T delta = second.mean - first.mean, count = first.count + second.count,
            share = second.count / count;
    return {std::fma(delta, share, first.mean),
            std::fma(delta * delta * first.count, share, first.squares + second.squares), count};
  }
};

// Halves a row of values until one is left. `step`: values that lie together and are reduced apart.
template <typename Operation, typename T = typename Operation::Accumulator>
void halve(T* values, int64_t count, int64_t step, const Operation& operation) {
  for (int64_t half = count / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half * step; ++i)
      values[i] = operation.combine(values[i], values[i + half * step]);
  }
}

// What the threads of some results, `width` of them side by side, have added up: values[thread][result].
// Leaves the results at the front.
template <typename Operation, typename T = typename Operation::Accumulator>
void combine_threads(const Threads& threads, std::vector<T>& values, int64_t width,
                     const Operation& operation) {
  const int64_t of_block = threads.lanes * threads.rows;
  for (int64_t block = 0; block < threads.blocks; ++block) {
    T* const own = values.data() + block * of_block * width;
    for (int64_t row = 0; row < threads.rows; ++row)
      halve(own + row * threads.lanes * width, threads.lanes, width, operation);
    for (int64_t row = 1; row < threads.rows && threads.lanes > 1; ++row)
      std::copy_n(own + row * threads.lanes * width, width, own + row * width);
    halve(own, threads.rows, width, operation);
    std::copy_n(own, width, values.data() + block * width);
  }
  if (threads.blocks == 1) return;
  // The last block adds up what blocks have found.
  const int64_t lanes = threads.is_inner ? threads.width : 1, count = lanes * threads.height;
  std::vector<T> last(static_cast<size_t>(count * width), operation.identity);
  for (int64_t block = 0; block < threads.blocks; ++block) {
    for (int64_t i = 0; i < width; ++i) {
      T& value = last[static_cast<size_t>(block % count * width + i)];
      value = operation.combine(value, values[static_cast<size_t>(block * width + i)]);
    }
  }
  halve(last.data(), threads.height, lanes * width, operation);
  halve(last.data(), lanes, width, operation);
  std::copy_n(last.begin(), width, values.begin());
}

// Adds up the elements of one result, which lie together, as numbers of T. `shift`: how many elements the
// first one lies behind an address of vectors.
template <typename T, typename Element, typename Operation>
typename Operation::Accumulator reduce_row(const Threads& threads, const Element* elements, int64_t count,
                                           int64_t shift, const Operation& operation) {
  using Accumulator = typename Operation::Accumulator;
  const int64_t all = threads.all(), vector = threads.vector;
  const int64_t own = vector == 1 ? Operation::kAccumulators : vector, period = own * all;  // of a thread
  std::vector<Accumulator> sums(static_cast<size_t>(period), operation.identity);
  const auto add = [&](int64_t place, Element element) {
    Accumulator& sum = sums[static_cast<size_t>(place)];
    sum = operation.add(sum, static_cast<T>(element));
  };
  if (vector > 1 && shift > 0) {
    for (int64_t i = shift; i < vector; ++i) add(i * vector, elements[i - shift]);
    elements += vector - shift;
    count -= vector - shift;
  }
  const int64_t tail = vector == 1 ? 0 : count % vector;
  for (int64_t at = 0; at < count - tail; at += period) {
    const Element* const from = elements + at;
    const int64_t size = std::min(period, count - tail - at);
    if constexpr (requires { operation.add_all(sums.data(), from, size); }) {
      operation.add_all(sums.data(), from, size);
    } else {
      for (int64_t i = 0; i < size; ++i) add(i, from[i]);
    }
  }
  for (int64_t i = 0; i < tail; ++i) add(i * vector, elements[count - tail + i]);
  // They lie together where loads are vectors, else as many apart as there are threads.
  const int64_t step = vector == 1 ? 1 : own, apart = vector == 1 ? all : 1;
  std::vector<Accumulator> values(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) {
    Accumulator value = sums[static_cast<size_t>(i * step)];
    for (int64_t j = 1; j < own; ++j)
      value = operation.combine(value, sums[static_cast<size_t>(i * step + j * apart)]);
    values[static_cast<size_t>(i)] = value;
  }
  combine_threads(threads, values, 1, operation);
  return values[0];
}

// Adds up some results side by side: element i of result j lies at elements[i * stride + j].
template <typename T, typename Element, typename Operation>
void reduce_columns(const Threads& threads, const Element* elements, int64_t count, int64_t stride,
                    int64_t width, const Operation& operation, typename Operation::Accumulator* results) {
  constexpr int64_t kOwn = Operation::kAccumulators;
  const int64_t all = threads.all();
  std::vector<typename Operation::Accumulator> sums(static_cast<size_t>(kOwn * all * width),
                                                    operation.identity);
  for (int64_t i = 0; i < count; ++i) {
    auto* const own = sums.data() + i % (kOwn * all) * width;
    const Element* const from = elements + i * stride;
    for (int64_t j = 0; j < width; ++j) own[j] = operation.add(own[j], static_cast<T>(from[j]));
  }
  for (int64_t unrolled = 1; unrolled < kOwn; ++unrolled) {
    const auto* const from = sums.data() + unrolled * all * width;
    for (int64_t i = 0; i < all * width; ++i)
      sums[static_cast<size_t>(i)] = operation.combine(sums[static_cast<size_t>(i)], from[i]);
  }
  combine_threads(threads, sums, width, operation);
  std::copy_n(sums.begin(), width, results);
}

// Where the elements of a result begin.
int64_t offset_of(const std::vector<Dim>& dims, int64_t index) {
  int64_t offset = 0;
  for (const Dim& dim : dims) {
    offset += index % dim.size * dim.stride;
    index /= dim.size;
  }
  return offset;
}

template <typename T, typename Element, typename Operation>
void reduce(const Shape& shape, const Threads& threads, const Element* elements, int64_t first_element,
            const Operation& operation, typename Operation::Accumulator* results) {
  const bool has_columns = !threads.is_inner && shape.kept[0].stride == 1 && shape.reduced.size() == 1;
  const int64_t columns = has_columns ? shape.kept[0].size : 1;
  const int64_t pieces = divided_up(columns, kColumns), rows = shape.results / columns;
  const int64_t grain =
      std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, shape.count * std::min(columns, kColumns)));
  at::parallel_for(0, rows * pieces, grain, [&](int64_t begin, int64_t end) {
    std::vector<Element> gathered;
    for (int64_t at = begin; at < end; ++at) {
      const int64_t first = at / pieces * columns + at % pieces * kColumns;
      const int64_t offset = offset_of(shape.kept, first);
      if (has_columns) {
        const int64_t width = std::min(kColumns, columns - at % pieces * kColumns);
        reduce_columns<T>(threads, elements + offset, shape.count, shape.reduced[0].stride, width, operation,
                          results + first);
        continue;
      }
      const Element* own = elements + offset;
      if (shape.reduced.size() > 1 || shape.reduced[0].stride != 1) {
        gathered.resize(static_cast<size_t>(shape.count));
        for (int64_t i = 0; i < shape.count; ++i)
          gathered[static_cast<size_t>(i)] = own[offset_of(shape.reduced, i)];
        own = gathered.data();
      }
      results[first] =
          reduce_row<T>(threads, own, shape.count, (first_element + offset) % threads.vector, operation);
    }
  });
}

struct Call {
  Tensor self;  // in the dtype that is added; of 16 bits, whose numbers are added in float32
  std::vector<bool> is_reduced;
  bool keeps = false;
  c10::ScalarType dtype = at::kFloat;
  int64_t first_element = 0, vector = kVector;  // by the operand's address, in elements; of a load
};

// (self, dtype) or (self, dims, keepdim, dtype), and an out. `narrow_vector`: elements of 16 bits that a load
// takes.
std::optional<Call> call_of(Arguments arguments, int64_t narrow_vector) {
  Call call;
  const Tensor& self = arguments[0].toTensor();
  const bool has_dims = arguments.size() >= 4;
  if (self.is_meta() || self.layout() != c10::kStrided || !is_summed(self.scalar_type())) return std::nullopt;
  if (self.numel() == 0 || self.numel() >= kMostElements) return std::nullopt;
  call.dtype = dtype_of_sum(arguments, has_dims ? 3 : 1);
  if (!is_summed(call.dtype)) return std::nullopt;
  call.is_reduced.assign(static_cast<size_t>(self.dim()), true);
  if (has_dims) {
    call.keeps = arguments[2].toBool();
    std::vector<int64_t> dims;
    if (arguments[1].isInt()) dims.push_back(arguments[1].toInt());
    if (arguments[1].isIntList()) dims = arguments[1].toIntVector();
    if (!dims.empty()) {
      const auto mask = at::dim_list_to_bitset(dims, static_cast<size_t>(self.dim()));
      for (size_t i = 0; i < call.is_reduced.size(); ++i) call.is_reduced[i] = mask[i];
    }
  }
  const bool widens = is_narrow(self.scalar_type()) && call.dtype == at::kFloat;
  call.self = widens ? self : self.to(call.dtype);
  call.vector = is_narrow(call.self.scalar_type()) ? narrow_vector : kVector;
  const auto address = reinterpret_cast<uintptr_t>(call.self.const_data_ptr());
  call.first_element = static_cast<int64_t>(address / call.self.element_size() % kNarrowVector);
  return call;
}

// A reduction as the card divides it among threads; empty where it is none of ours.
struct Plan {
  Call call;
  Shape shape;
  Threads threads;
  std::vector<int64_t> sizes;  // of the result

  // `vector`: elements that a load takes; of 16 bits.
  static std::optional<Plan> of(Arguments arguments, int64_t vector, int64_t narrow_vector) {
    const runtime::RandomGrid* const grid = adding_grid();
    if (grid == nullptr) return std::nullopt;
    std::optional<Call> call = call_of(arguments, narrow_vector);
    if (!call) return std::nullopt;
    Plan plan{std::move(*call), {}, {}, {}};
    if (!is_narrow(plan.call.self.scalar_type())) plan.call.vector = vector;
    plan.shape = shape_of(plan.call.self, plan.call.is_reduced);
    if (plan.shape.reduced.empty()) return std::nullopt;
    for (int64_t dim = 0; dim < plan.call.self.dim(); ++dim) {
      if (!plan.call.is_reduced[static_cast<size_t>(dim)]) {
        plan.sizes.push_back(plan.call.self.size(dim));
      } else if (plan.call.keeps) {
        plan.sizes.push_back(1);
      }
    }
    plan.threads = threads_of(plan.shape, plan.call.first_element, plan.call.vector, *grid);
    return plan;
  }

  // Calls `run` with a number of the operand's dtype and one of those that are added.
  template <typename Run>
  void dispatch(const Run& run) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, call.self.scalar_type(), "sum_cuda",
                                    [&] { run(scalar_t{}, at::opmath_type<scalar_t>{}); });
  }

  // A result in the dtype that is added.
  template <typename T>
  Tensor empty() const {
    return at::empty(sizes, call.self.options().dtype(c10::CppTypeToScalarType<T>::value));
  }

  template <typename Element, typename T, typename Operation>
  void fill(const Operation& operation, typename Operation::Accumulator* results) const {
    reduce<T>(shape, threads, call.self.const_data_ptr<Element>(), call.first_element, operation, results);
  }
};

template <typename Combine>
Tensors reduced(Arguments arguments, double identity, bool is_mean = false,
                int64_t narrow_vector = kNarrowVector) {
  const std::optional<Plan> plan = Plan::of(arguments, kVector, narrow_vector);
  if (!plan) return {};
  Tensor result;
  plan->dispatch([&]<typename Element, typename T>(Element, T) {
    result = plan->empty<T>();
    T* const results = result.mutable_data_ptr<T>();
    plan->fill<Element, T>(Fold<T, Combine>{static_cast<T>(identity)}, results);
    const int64_t count = plan->shape.results;
    const T share = static_cast<T>(count) / static_cast<T>(count * plan->shape.count);
    if (is_mean) std::for_each_n(results, count, [&](T& value) { value *= share; });
  });
  return {result.to(plan->call.dtype)};
}

// (self, dims, correction, keepdim), and outs.
Tensors variance(Arguments arguments, bool is_root, bool has_mean) {
  if (arguments.size() < 4 || arguments[2].isBool()) return {};  // another overload, made of this one
  if (!arguments[2].isNone() && !arguments[2].isScalar()) return {};
  const double correction = arguments[2].isNone() ? 1 : arguments[2].toScalar().toDouble();
  const torch::jit::Stack moved{arguments[0], arguments[1], arguments[3],
                                arguments[0].toTensor().scalar_type()};
  const std::optional<Plan> plan = Plan::of(moved, kPair, kPair);
  // The engine warns where no element is left.
  if (!plan || static_cast<double>(plan->shape.count) <= correction) return {};
  Tensor spread, mean;
  plan->dispatch([&]<typename Element, typename T>(Element, T) {
    spread = plan->empty<T>();
    mean = plan->empty<T>();
    std::vector<typename Moments<T>::Accumulator> found(static_cast<size_t>(plan->shape.results));
    plan->fill<Element, T>(Moments<T>(), found.data());
    T *const spreads = spread.mutable_data_ptr<T>(), *const means = mean.mutable_data_ptr<T>();
    for (size_t i = 0; i < found.size(); ++i) {
      const T divisor = std::max(found[i].count - static_cast<T>(correction), T(0));
      const T variance = found[i].squares / divisor;
      spreads[i] = is_root ? std::sqrt(variance) : variance;
      means[i] = found[i].mean;
    }
  });
  Tensors results{spread.to(plan->call.dtype)};
  if (has_mean) results.push_back(mean.to(plan->call.dtype));
  return results;
}
}  // namespace

const runtime::RandomGrid* adding_grid() {
  const runtime::RandomGrid& grid = devices().device(runtime::current_device()).chip().random_grid;
  return grid.is_nvidia && grid.is_given() ? &grid : nullptr;
}
bool is_narrow(c10::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }
bool is_summed(c10::ScalarType type) { return type == at::kFloat || type == at::kDouble || is_narrow(type); }
c10::ScalarType dtype_of_sum(Arguments arguments, size_t place) {
  if (arguments[place].isInt()) return arguments[place].toScalarType();
  return arguments[place + 1 < arguments.size() ? place + 1 : 0].toTensor().scalar_type();
}

Tensors sum_of_numbers_in_order(Arguments arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (self.is_meta() || self.layout() != c10::kStrided || !is_summed(self.scalar_type())) return {};
  torch::jit::Stack numbers(arguments.begin(), arguments.end());
  numbers[0] = at::where(self.isnan(), at::zeros({}, self.options()), self);
  return sum_in_order(numbers);
}
Tensors sum_in_order(Arguments arguments) { return reduced<std::plus<>>(arguments, 0.0); }
Tensors mean_in_order(Arguments arguments) { return reduced<std::plus<>>(arguments, 0.0, /*is_mean=*/true); }
Tensors product_in_order(Arguments arguments) {
  return reduced<std::multiplies<>>(arguments, 1.0, /*is_mean=*/false, kVector);
}

bool is_long_row(const Tensor& grad, int64_t dim) {
  // The engine's kernel adds a row in the lanes of one vector: shorter ones differ in the last bits only.
  constexpr int64_t kLongRow = int64_t{1} << 14;
  return grad.scalar_type() == c10::kFloat && grad.dim() != 0 && (dim == -1 || dim == grad.dim() - 1) &&
         grad.size(-1) >= kLongRow;
}

Tensors log_softmax_gradient(Arguments arguments) {
  const Tensor &grad = arguments[0].toTensor(), &output = arguments[1].toTensor();
  const auto type = arguments[3].toScalarType();
  if (!is_long_row(grad, arguments[2].toInt()) || output.scalar_type() != c10::kFloat ||
      type != c10::kFloat || grad.sizes() != output.sizes() || grad.is_meta())
    return {};
  const int64_t width = grad.size(-1);
  const Tensor own = grad.reshape({-1, width}), logs = output.reshape({-1, width});
  const Tensor sums = at::sum(own, {1}, /*keepdim=*/true);
  Tensor result = at::empty_like(grad, at::MemoryFormat::Contiguous);
  const Tensor rows = result.view({-1, width});
  // So many rows at a time that they stay in the cache.
  const int64_t step = std::max<int64_t>((int64_t{1} << 17) / width, 1);
  for (int64_t row = 0; row < rows.size(0); row += step) {
    const int64_t count = std::min(step, rows.size(0) - row);
    Tensor part = rows.narrow(0, row, count);
    at::exp_out(part, logs.narrow(0, row, count));
    part.mul_(sums.narrow(0, row, count));
    at::sub_out(part, own.narrow(0, row, count), part);
  }
  return {result};
}

Tensors norm_in_order(Arguments arguments) {
  if (!arguments[1].isScalar() || arguments[1].isComplexDouble()) return {};
  const double power = arguments[1].toScalar().toDouble();
  if (power != 0 && power != 1 && power != 2) return {};
  // The engine refuses an out of another dtype, and a narrower one.
  const c10::ScalarType own = arguments[0].toTensor().scalar_type();
  if (arguments[4].isInt() &&
      c10::promoteTypes(own, arguments[4].toScalarType()) != arguments[4].toScalarType())
    return {};
  const bool has_out = arguments.size() > 5 && arguments[4].isNone();
  if (has_out && arguments[5].toTensor().scalar_type() != own) return {};
  torch::jit::Stack moved{arguments[0], arguments[2], arguments[3], arguments[4]};
  if (arguments.size() > 5) moved.push_back(arguments[5]);
  const std::optional<Plan> plan = Plan::of(moved, kVector, kVector);
  if (!plan) return {};
  Tensor result;
  plan->dispatch([&]<typename Element, typename T>(Element, T) {
    result = plan->empty<T>();
    T* const results = result.mutable_data_ptr<T>();
    if (power == 0) plan->fill<Element, T>(Powers<T, 0>(), results);
    if (power == 1) plan->fill<Element, T>(Powers<T, 1>(), results);
    if (power == 2) {
      plan->fill<Element, T>(Powers<T, 2>(), results);
      std::for_each_n(results, plan->shape.results, [](T& value) { value = std::sqrt(value); });
    }
  });
  return {result.to(plan->call.dtype)};
}

template <bool kIsRoot, bool kHasMean>
Tensors variance_in_order(Arguments arguments) {
  return variance(arguments, kIsRoot, kHasMean);
}
template Tensors variance_in_order<false, false>(Arguments);
template Tensors variance_in_order<false, true>(Arguments);
template Tensors variance_in_order<true, false>(Arguments);
template Tensors variance_in_order<true, true>(Arguments);

}  // namespace loom::glue
