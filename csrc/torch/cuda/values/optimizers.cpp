#include "torch/cuda/values/optimizers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "torch/cuda/values/fused_loops.h"
#include "torch/cuda/values/reductions.h"

namespace loom::glue {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;
using Tensors = std::vector<Tensor>;

template <typename T>
struct Adam {
  T rate, beta1, beta2, decay, eps, root_of_correction, scale;
  bool is_decoupled, maximizes, has_scale;
  T size;  // of a step

  [[gnu::always_inline]] void step(T* parameter, T* gradient, T* average, T* square, T* largest,
                                   int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      T own = parameter[i], way = gradient[i];
      if (has_scale) gradient[i] = way = way / scale;
      if (maximizes) way = -way;
      if (decay != 0) {
        if (is_decoupled) {
          own = fused(-(rate * decay), own, own);
        } else {
          way = fused(own, decay, way);
        }
      }
      const T of_squares = way * way;
      const T mean = fused(beta1, average[i], fused(-beta1, way, way));
      const T spread = fused(beta2, square[i], fused(-beta2, of_squares, of_squares));
      T decisive = spread;
      if (largest != nullptr) largest[i] = decisive = std::max(largest[i], spread);
      parameter[i] = own - size * mean / (std::sqrt(decisive) / root_of_correction + eps);
      average[i] = mean;
      square[i] = spread;
    }
  }
};

template <typename T>
struct Sgd {
  T decay, momentum, rate, share, scale;  // share: 1 - dampening
  bool is_nesterov, maximizes, is_first, has_scale;

  [[gnu::always_inline]] void step(T* parameter, T* gradient, T* velocity, int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      T way = gradient[i];
      const T own = parameter[i];
      if (has_scale) gradient[i] = way = way / scale;
      if (maximizes) way = -way;
      if (decay != 0) way = fused(decay, own, way);
      if (velocity != nullptr) {
        const T moved = is_first ? way : fused(share, way, momentum * velocity[i]);
        velocity[i] = moved;
        way = is_nesterov ? fused(momentum, moved, way) : moved;
      }
      parameter[i] = fused(-rate, way, own);
    }
  }
};

LOOM_FUSES void run(const Adam<float>& step, float* a, float* b, float* c, float* d, float* e, int64_t begin,
                    int64_t end) {
  step.step(a, b, c, d, e, begin, end);
}
LOOM_FUSES void run(const Adam<double>& step, double* a, double* b, double* c, double* d, double* e,
                    int64_t begin, int64_t end) {
  step.step(a, b, c, d, e, begin, end);
}
LOOM_FUSES void run(const Sgd<float>& step, float* a, float* b, float* c, int64_t begin, int64_t end) {
  step.step(a, b, c, begin, end);
}
LOOM_FUSES void run(const Sgd<double>& step, double* a, double* b, double* c, int64_t begin, int64_t end) {
  step.step(a, b, c, begin, end);
}

// Lists of tensors that belong together, as they are computed in: half precision in float32.
class Lists {
 public:
  // False where a tensor is none of one real dtype, or has another shape than its parameter.
  bool add(const c10::IValue& list, bool is_written = true) {
    if (!list.isTensorList()) return false;
    Tensors own = list.toTensorVector();
    if (lists_.empty()) {
      if (own.empty()) return false;
      type_ = own[0].scalar_type();
    }
    const Tensors& first = lists_.empty() ? own : lists_[0];
    if (own.size() != first.size() || !is_summed(type_)) return false;
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor& tensor = own[i];
      if (tensor.is_meta() || tensor.layout() != c10::kStrided || tensor.scalar_type() != type_ ||
          tensor.sizes() != first[i].sizes())
        return false;
    }
    lists_.push_back(std::move(own));
    is_written_.push_back(is_written);
    return true;
  }

  size_t count() const { return lists_[0].size(); }
  bool is_wide() const { return type_ == at::kDouble; }
  const Tensors& first() const { return lists_[0]; }

  // Calls `run` with the elements of each list's tensor number `i`, in parts.
  template <typename T, typename Run>
  void each(size_t i, const Run& run) const {
    // What lies alike is changed in its place, other tensors by copies that do.
    const bool is_in_place = !is_narrow(type_) && lie_alike(i);
    const c10::ScalarType wide = is_narrow(type_) ? at::kFloat : type_;
    Tensors used;
    std::vector<T*> places;
    for (const Tensors& list : lists_) {
      used.push_back(is_in_place ? list[i] : list[i].to(wide).contiguous());
      places.push_back(used.back().template mutable_data_ptr<T>());
    }
    at::parallel_for(0, lists_[0][i].numel(), 1 << 14,
                     [&](int64_t begin, int64_t end) { run(places.data(), begin, end); });
    for (size_t list = 0; list < lists_.size(); ++list) {
      if (is_written_[list] && !used[list].is_same(lists_[list][i])) lists_[list][i].copy_(used[list]);
    }
  }

 private:
  bool lie_alike(size_t i) const {
    return std::all_of(lists_.begin(), lists_.end(), [&](const Tensors& list) {
      return list[i].is_non_overlapping_and_dense() && list[i].strides() == lists_[0][i].strides();
    });
  }

  std::vector<Tensors> lists_;
  std::vector<bool> is_written_;
  c10::ScalarType type_ = c10::ScalarType::Undefined;
};

double number_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item<double>() : value.toScalar().toDouble();
}

// What gradients are divided by, and whether one of them was infinite: then nothing changes.
struct Scaling {
  std::optional<double> scale;
  bool is_skipped = false;

  Scaling(const c10::IValue& scaled_by, const c10::IValue& found_infinite) {
    if (scaled_by.isTensor()) scale = scaled_by.toTensor().item<double>();
    is_skipped = found_infinite.isTensor() && found_infinite.toTensor().item<double>() == 1;
  }
};

Tensors adam(Arguments arguments, bool is_decoupled) {
  if (arguments.size() != 15) return {};
  const bool is_bounded = arguments[11].toBool();
  Lists lists;
  for (size_t list = 0; list < 4; ++list) {
    // Gradients are written where they are scaled.
    if (!lists.add(arguments[list], list != 1 || arguments[13].isTensor())) return {};
  }
  if (is_bounded && !lists.add(arguments[4])) return {};
  const Tensors steps = arguments[5].toTensorVector();
  if (steps.size() != lists.count()) return {};
  const Scaling scaling(arguments[13], arguments[14]);
  if (scaling.is_skipped) return lists.first();
  const auto run_all = [&]<typename T>(T) {
    const auto of = [&](size_t place) { return static_cast<T>(number_of(arguments[place])); };
    Adam<T> step{of(6),
                 of(7),
                 of(8),
                 of(9),
                 of(10),
                 T(0),
                 static_cast<T>(scaling.scale.value_or(1)),
                 is_decoupled,
                 arguments[12].toBool(),
                 scaling.scale.has_value(),
                 T(0)};
    for (size_t i = 0; i < lists.count(); ++i) {
      const T number = static_cast<T>(steps[i].item<double>());
      step.root_of_correction = std::sqrt(T(1) - std::pow(step.beta2, number));
      step.size = step.rate / (T(1) - std::pow(step.beta1, number));
      lists.each<T>(i, [&](T* const* at, int64_t begin, int64_t end) {
        run(step, at[0], at[1], at[2], at[3], is_bounded ? at[4] : nullptr, begin, end);
      });
    }
  };
  lists.is_wide() ? run_all(double{}) : run_all(float{});
  return lists.first();
}

}  // namespace

template <bool kIsDecoupled>
Tensors adam_step(Arguments arguments) {
  return adam(arguments, kIsDecoupled);
}
template Tensors adam_step<false>(Arguments);
template Tensors adam_step<true>(Arguments);

Tensors sgd_step(Arguments arguments) {
  if (arguments.size() != 12) return {};
  const bool has_momentum = arguments[4].toDouble() != 0;
  Lists lists;
  if (!lists.add(arguments[0]) || !lists.add(arguments[1], arguments[10].isTensor())) return {};
  if (has_momentum && !lists.add(arguments[2])) return {};
  const Scaling scaling(arguments[10], arguments[11]);
  if (scaling.is_skipped) return lists.first();
  const auto run_all = [&]<typename T>(T) {
    const auto of = [&](size_t place) { return static_cast<T>(number_of(arguments[place])); };
    const Sgd<T> step{of(3),
                      of(4),
                      of(5),
                      static_cast<T>(1 - arguments[6].toDouble()),
                      static_cast<T>(scaling.scale.value_or(1)),
                      arguments[7].toBool(),
                      arguments[8].toBool(),
                      arguments[9].toBool(),
                      scaling.scale.has_value()};
    for (size_t i = 0; i < lists.count(); ++i) {
      lists.each<T>(i, [&](T* const* at, int64_t begin, int64_t end) {
        run(step, at[0], at[1], has_momentum ? at[2] : nullptr, begin, end);
      });
    }
  };
  lists.is_wide() ? run_all(double{}) : run_all(float{});
  return lists.first();
}

}  // namespace loom::glue
