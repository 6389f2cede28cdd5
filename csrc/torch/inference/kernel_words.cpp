#include "torch/inference/kernel_words.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "torch/core/python_errors.h"
#include "torch/engine/engine.h"
#include "torch/loans/replace_tensors.h"
#include "torch/loans/silence.h"
#include "torch/ops/engine_call.h"

namespace loom::glue {

namespace {

using torch::jit::Stack;

constexpr size_t kMostBytes = size_t{1} << 24;  // of all operands
constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

// How the host's tensors differ from the engine's.
struct Changes {
  size_t most_bytes = kMostBytes;   // of all
  int64_t largest_size = kAnySize;  // sizes above it become it
  // The dtype in the place of the one that the tensor in this place has.
  std::function<c10::ScalarType(size_t place, c10::ScalarType own)> dtype = {};
};

// The arguments with zeros of the host in the place of the engine's tensors; nothing where there are none of
// their kind, or too many.
class HostZeros {
 public:
  static std::optional<Stack> of(const Stack& arguments, const Changes& changes = {}) {
    HostZeros zeros(changes);
    Stack call;
    for (const c10::IValue& value : arguments) {
      if (value.isDevice()) {
        call.emplace_back(c10::Device(c10::kCPU));
      } else {
        call.push_back(
            with_tensors_replaced(value, [&](const at::Tensor& tensor) { return zeros.of(tensor); }));
      }
    }
    return zeros.are_possible_ ? std::optional(std::move(call)) : std::nullopt;
  }

 private:
  explicit HostZeros(const Changes& changes) : changes_(changes) {}

  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta() || !are_possible_) return tensor;
    at::Tensor& known = known_[tensor.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    if (tensor.layout() == c10::kStrided && !tensor.is_quantized()) {
      known = zeros_like(tensor);
    } else {
      are_possible_ = false;
    }
    if (!are_possible_) return tensor;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      known.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return known;
  }

  at::Tensor zeros_like(const at::Tensor& tensor) {
    const auto own = tensor.scalar_type();
    const auto options = tensor.options().device(c10::kCPU).dtype(
        changes_.dtype ? changes_.dtype(known_.size() - 1, own) : own);
    std::vector<int64_t> sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
    if (std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size > changes_.largest_size; })) {
      for (int64_t& size : sizes) size = std::min(size, changes_.largest_size);
      strides = at::infer_dense_strides(sizes, strides);
    }
    bytes_ += at::detail::computeStorageNbytes(sizes, strides, options.dtype().itemsize());
    are_possible_ &= bytes_ <= changes_.most_bytes;
    return are_possible_ ? at::empty_strided(sizes, strides, options).zero_() : at::Tensor();
  }

  const Changes& changes_;
  size_t bytes_ = 0;
  bool are_possible_ = true;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known_;
};

bool has_host_kernel(const Op& op) {
  // oneDNN's own ops take its workspaces, whose contents they trust.
  if (std::string_view(op.name()).starts_with("aten::mkldnn_")) return false;
  // A kernel that draws would change the program's random numbers.
  return !op.has_generator && !op.handle.hasTag(at::Tag::nondeterministic_seeded) &&
         op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

void call_on_host(const Op& op, Stack call) {
  call_kernel(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &call);
}

// Whether the host's kernel takes a call.
bool is_taken(const Op& op, std::optional<Stack> call) {
  try {
    if (!call.has_value()) return false;
    call_on_host(op, *std::move(call));
    return true;
  } catch (...) {
    text_of_refusal();
  }
  return false;
}

std::vector<at::Tensor> tensors_of(const Stack& arguments) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : arguments) {
    with_tensors_replaced(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) tensors.push_back(tensor);
      return tensor;
    });
  }
  return tensors;
}

// Whether an error speaks of dtypes: by that word, or by the name of one that the call has.
bool is_about_dtypes(const std::string& text, const std::vector<at::Tensor>& tensors) {
  return text.find("type") != std::string::npos || text.find("not implemented for") != std::string::npos ||
         std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
           return text.find(c10::toString(tensor.scalar_type())) != std::string::npos;
         });
}

c10::ScalarType usual(c10::ScalarType own) {
  if (c10::isComplexType(own)) return c10::kComplexFloat;
  if (c10::isFloatingType(own)) return c10::kFloat;
  return own == c10::kBool ? own : c10::kLong;
}

// Whether the call is right but for its dtypes: with others the host's kernel takes it.
bool is_taken_with_other_dtypes(const Op& op, const Stack& arguments, Changes changes, size_t num_tensors) {
  const auto is_taken_with = [&](auto dtype) {
    changes.dtype = dtype;
    return is_taken(op, HostZeros::of(arguments, changes));
  };
  const auto real = [](c10::ScalarType) { return c10::kFloat; };
  const auto whole = [](c10::ScalarType) { return c10::kLong; };
  for (const auto& dtype :
       std::initializer_list<std::function<c10::ScalarType(c10::ScalarType)>>{usual, real, whole}) {
    if (is_taken_with([&](size_t, c10::ScalarType own) { return dtype(own); })) return true;
    // One of them should be indices.
    for (size_t index = 0; index < num_tensors; ++index) {
      if (is_taken_with(
              [&](size_t place, c10::ScalarType own) { return place == index ? c10::kLong : dtype(own); })) {
        return true;
      }
    }
  }
  return false;
}

// What decides whether a kernel takes a call's dtypes: all but sizes and numbers.
size_t kind_of(const Op& op, const Stack& arguments) {
  size_t kind = op.record.id;
  const auto mix = [&](size_t value) { kind = c10::hash_combine(kind, value); };
  for (const c10::IValue& value : arguments) {
    mix(value.isNone());
    if (value.isString()) mix(std::hash<std::string_view>()(value.toStringView()));
    if (value.isBool()) mix(value.toBool());
    if (value.isScalar()) mix(static_cast<size_t>(value.toScalar().type()));
    with_tensors_replaced(value, [&](const at::Tensor& tensor) {
      mix(tensor.defined());
      if (!tensor.defined()) return tensor;
      mix(static_cast<size_t>(tensor.scalar_type()));
      mix(static_cast<size_t>(tensor.dim()));
      mix(tensor.numel() == 0);
      return tensor;
    });
  }
  return kind;
}

// Kinds of calls that have been looked at, and were not refused.
struct Known {
  std::mutex mutex;
  std::unordered_set<size_t> kinds;
};
Known& known() {
  static auto* const instance = new Known;
  return *instance;
}

// Whether a call with smaller operands means the same: no number among its arguments stands for a size.
bool may_shrink(const Stack& arguments, int64_t largest_size) {
  int64_t product = 1;
  for (const c10::IValue& value : arguments) {
    std::vector<int64_t> numbers;
    if (value.isInt()) numbers = {value.toInt()};
    if (value.isIntList()) numbers = value.toIntVector();
    for (const int64_t number : numbers) {
      if (number > largest_size || number < -largest_size) return false;
      product *= std::max<int64_t>(number, 1);
    }
    if (product > 4096) return false;
  }
  return true;
}

// What autograd and other ops call: such kernels trust that sizes fit together, and read past the end where
// they do not.
bool is_internal(const Op& op) {
  const std::string_view name = op.name();
  return !name.starts_with("aten::") || name.starts_with("aten::_") || name.starts_with("aten::fbgemm_") ||
         name.find("backward") != std::string_view::npos;
}

// What the calls on the host may look like, the cheapest first.
std::vector<Changes> attempts(const Op& op, const Stack& arguments, size_t result_bytes) {
  constexpr size_t kFewBytes = size_t{1} << 20;
  std::vector<Changes> all;
  if (result_bytes <= kFewBytes) all.push_back({.most_bytes = kFewBytes});
  for (const int64_t largest_size : {16, 4}) {
    if (!is_internal(op) && may_shrink(arguments, largest_size))
      all.push_back({.most_bytes = kFewBytes, .largest_size = largest_size});
  }
  if (result_bytes <= kMostBytes) all.push_back({});
  return all;
}

// Whether a gradient is given halves with float32, in which a GPU keeps the mean and the variance of halves;
// the host's kernels keep those in halves and take no others.
bool has_statistics(const Stack& arguments) {
  bool has_half = false, has_single = false;
  for (const at::Tensor& tensor : tensors_of(arguments)) {
    has_half |= tensor.scalar_type() == c10::kHalf || tensor.scalar_type() == c10::kBFloat16;
    has_single |= tensor.scalar_type() == c10::kFloat;
  }
  return has_half && has_single;
}

void refuse_dtypes(const Op& op, const Stack& arguments, size_t result_bytes) {
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  for (const Changes& changes : attempts(op, arguments, result_bytes)) {
    const std::optional<Stack> call = HostZeros::of(arguments, changes);
    if (!call.has_value()) continue;
    try {
      call_on_host(op, *call);
      return;
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      if (is_about_dtypes(text_of_refusal(), tensors) &&
          is_taken_with_other_dtypes(op, arguments, changes, tensors.size())) {
        std::rethrow_exception(error);
      }
    }
  }
}

}  // namespace

void rethrow_in_kernel_words(const Op& op, const Stack& arguments) {
  const std::exception_ptr own = std::current_exception();
  text_of_refusal();
  {
    const ShapeFunctionScope below_programs;
    const Silence silence;
    if (op.shape_function()) {
      Stack call = arguments;
      op.shape_function()(call);
    }
    if (has_host_kernel(op)) {
      if (std::optional<Stack> call = HostZeros::of(arguments)) call_on_host(op, *std::move(call));
      refuse_dtypes(op, arguments, /*result_bytes=*/0);
    }
  }
  std::rethrow_exception(own);
}

void refuse_dtypes_as_kernel(const Op& op, const Stack& arguments, c10::ArrayRef<c10::IValue> results) {
  const std::string_view name = op.name();
  if (!(name.starts_with("aten::") || name.starts_with("loom_fused::")) || !has_host_kernel(op)) return;
  if (name.find("backward") != std::string_view::npos && has_statistics(arguments)) return;
  const size_t kind = kind_of(op, arguments);
  {
    const std::lock_guard<std::mutex> lock(known().mutex);
    if (known().kinds.count(kind) != 0) return;
  }
  size_t result_bytes = 0;
  for (const at::Tensor& result : tensors_of(Stack(results.begin(), results.end()))) {
    if (!result.is_meta() || result.layout() != c10::kStrided) return;
    result_bytes += result.nbytes();
  }
  {
    const ShapeFunctionScope below_programs;
    const Silence silence;
    refuse_dtypes(op, arguments, result_bytes);
  }
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().kinds.insert(kind);
}

}  // namespace loom::glue
