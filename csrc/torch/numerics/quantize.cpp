// quantize and its variants: the CPU's kernels and the shape functions.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "numerics/tensix/conversions.h"
#include "torch/core/python_errors.h"
#include "torch/core/registration.h"
#include "torch/engine/engine.h"
#include "torch/numerics/common.h"
#include "torch/numerics/register.h"

namespace loom::numerics::glue {

namespace {

// Results at least as large leave the caches alone: they would not stay there.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;
constexpr int64_t kGrain = 1 << 15;  // elements worth a thread

std::atomic<int64_t> total_values{0}, total_blocks{0};
std::atomic<bool> has_warned{false};

std::mutex pending_mutex;
std::string pending;  // the warning that no thread of Python's has given yet
std::atomic<bool> is_pending{false};

// Kernels run on workers, too, which must not wait for Python: they leave the warning to the next caller.
void report(const Counts& counts, c10::string_view op) {
  if (counts.values == 0 && counts.blocks == 0) return;
  total_values += counts.values;
  total_blocks += counts.blocks;
  if (has_warned.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(pending_mutex);
  pending = c10::str(op, ": ", counts.values, " infinite or NaN values that the format cannot hold, and ",
                     counts.blocks,
                     " blocks that a NaN made NaN. numerics.nonfinite(tensor) counts them, "
                     "numerics.nonfinite_total() those of the process; this is said once.");
  is_pending = true;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && !tensor.is_neg();
}

// Elements whose neighbours do not matter may be converted in the order in which they lie.
bool is_dense_alike(const at::Tensor& in, const at::Tensor& out) {
  return in.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat && !in.is_neg() && !out.is_neg() &&
         in.is_non_overlapping_and_dense() && in.strides() == out.strides();
}

// Integers in an integer format need no float.
void clamp_into(Format format, const at::Tensor& self, const at::Tensor& out) {
  const IntegerRange range = integer_range(format);
  const auto limits = [&](auto type) {
    using T = decltype(type);
    const auto low = std::max(static_cast<double>(std::numeric_limits<T>::min()), range.low);
    const double most = static_cast<double>(std::numeric_limits<T>::max());
    out.copy_(most <= range.high
                  ? at::clamp(self, static_cast<int64_t>(low))
                  : at::clamp(self, static_cast<int64_t>(low), static_cast<int64_t>(range.high)));
  };
  switch (self.scalar_type()) {
    case at::kByte:
      return limits(uint8_t{});
    case at::kChar:
      return limits(int8_t{});
    case at::kShort:
      return limits(int16_t{});
    case at::kInt:
      return limits(int32_t{});
    default:
      return limits(int64_t{});
  }
}

bool is_integral(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kByte || type == at::kChar || type == at::kShort || type == at::kInt ||
         type == at::kLong;
}

void check_operand(Format format, const at::Tensor& self, const char* op) {
  if (is_integer(format) && is_integral(self)) return;
  check_floating(self, op);
}

Counts quantize_into(Format format, Format first, const at::Tensor& self, const at::Tensor& out,
                     c10::string_view op) {
  if (self.numel() == 0) return {};
  if (is_integral(self)) {
    clamp_into(format, self, out);
    return {};
  }
  if ((is_plain(self) && is_plain(out)) || (!is_block(format) && is_dense_alike(self, out))) {
    return convert_reported(format, first, self, out, op);
  }
  const at::Tensor values = as_floats(self);
  const bool is_own = !values.is_alias_of(self);
  const at::Tensor target = is_plain(out) ? out : is_own ? values : at::empty_like(values);
  const Counts counts = convert_reported(format, first, values, target, op);
  if (!target.is_same(out)) out.copy_(target);
  return counts;
}

Format first_format(int64_t first, const char* op) {
  return first == kNone ? Format::kInvalid : checked_format(first, op);
}

at::Tensor quantize_cpu(const at::Tensor& self, int64_t format, int64_t first, int64_t, c10::string_view op) {
  const Format to = checked_format(format, "quantize");
  check_operand(to, self, "quantize");
  at::Tensor out = at::empty_like(self);
  quantize_into(to, first_format(first, "quantize"), self, out, op);
  return out;
}

void quantize_inplace_cpu(at::Tensor& self, int64_t format, int64_t first, int64_t, c10::string_view op) {
  const Format to = checked_format(format, "quantize_");
  check_operand(to, self, "quantize_");
  at::assert_no_internal_overlap(self);
  quantize_into(to, first_format(first, "quantize_"), self, self, op);
}

void quantize_out_cpu(const at::Tensor& self, int64_t format, int64_t first, at::Tensor& out) {
  const Format to = checked_format(format, "quantize");
  check_operand(to, self, "quantize");
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, self);
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "quantize: out is a ", out.scalar_type(),
              " tensor, and the result is ", self.scalar_type());
  if (out.sizes() != self.sizes()) out.resize_(self.sizes());
  quantize_into(to, first_format(first, "quantize"), self, out, "quantize");
}

std::tuple<at::Tensor, at::Tensor> quantize_counted_cpu(const at::Tensor& self, int64_t format, int64_t,
                                                        c10::string_view op) {
  const Format to = checked_format(format, "quantize");
  check_operand(to, self, "quantize");
  at::Tensor out = at::empty_like(self);
  const Counts counts = quantize_into(to, Format::kInvalid, self, out, op);
  at::Tensor counted = at::empty({2}, self.options().dtype(at::kLong));
  counted.mutable_data_ptr<int64_t>()[0] = counts.values;
  counted.mutable_data_ptr<int64_t>()[1] = counts.blocks;
  return {std::move(out), std::move(counted)};
}

// Of the bits of a tensor and the order in which they lie; never zero, which is what a new mark has.
int64_t fingerprint(const at::Tensor& tensor) {
  constexpr int64_t kWords = int64_t{1} << 15;  // of a part, which a thread takes by itself
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  const int64_t num_bytes = static_cast<int64_t>(dense.nbytes()), num_words = num_bytes / 4;
  const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
  const int64_t num_parts = (num_words + kWords - 1) / kWords;
  std::vector<uint64_t> parts(static_cast<size_t>(num_parts));
  const auto& best = kernels();
  at::parallel_for(0, num_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * kWords;
      parts[static_cast<size_t>(part)] =
          best.fingerprint(bytes + first * 4, std::min(kWords, num_words - first));
    }
  });
  uint32_t rest = 0;
  if (num_bytes > num_words * 4) {
    std::memcpy(&rest, bytes + num_words * 4, static_cast<size_t>(num_bytes - num_words * 4));
  }
  uint64_t hash = best.fingerprint(parts.data(), 2 * num_parts) ^ (uint64_t{rest} << 1) ^ tensor.is_neg();
  for (const int64_t stride : dense.strides()) hash = hash * 31 + static_cast<uint64_t>(stride);
  return static_cast<int64_t>(hash | 1);
}

void renew_cpu(at::Tensor& kept, at::Tensor& mark, const at::Tensor& self, int64_t format) {
  const Format to = checked_format(format, "renew_");
  check_operand(to, self, "renew_");
  TORCH_CHECK(kept.sizes() == self.sizes() && kept.scalar_type() == self.scalar_type() &&
                  mark.scalar_type() == at::kLong && mark.numel() == 1,
              "renew_: kept is ", kept.toString(), kept.sizes(), " and mark ", mark.toString(), mark.sizes(),
              ", where self is ", self.toString(), self.sizes(), " and mark is an int64 of one element");
  const int64_t now = fingerprint(self);
  auto* known = mark.mutable_data_ptr<int64_t>();
  if (*known == now) return;
  quantize_into(to, Format::kInvalid, self, kept, "quantize");
  *known = now;
}

void renew_meta(at::Tensor&, at::Tensor&, const at::Tensor& self, int64_t format) {
  check_operand(checked_format(format, "renew_"), self, "renew_");
}

at::Tensor quantize_meta(const at::Tensor& self, int64_t format, int64_t, int64_t, c10::string_view) {
  check_operand(checked_format(format, "quantize"), self, "quantize");
  return at::empty_like(self);
}

void quantize_inplace_meta(at::Tensor& self, int64_t format, int64_t, int64_t, c10::string_view) {
  check_operand(checked_format(format, "quantize_"), self, "quantize_");
}

void quantize_out_meta(const at::Tensor& self, int64_t format, int64_t, at::Tensor& out) {
  check_operand(checked_format(format, "quantize"), self, "quantize");
  if (out.sym_sizes() != self.sym_sizes()) out.resize__symint(self.sym_sizes());
}

std::tuple<at::Tensor, at::Tensor> quantize_counted_meta(const at::Tensor& self, int64_t format, int64_t,
                                                         c10::string_view) {
  check_operand(checked_format(format, "quantize"), self, "quantize");
  return {at::empty_like(self), at::empty({2}, self.options().dtype(at::kLong))};
}

std::vector<int64_t> totals(bool reset) {
  give_warning();
  std::vector<int64_t> result = {total_values.load(), total_blocks.load()};
  if (reset) {
    total_values = 0;
    total_blocks = 0;
    has_warned = false;
    is_pending = false;
  }
  return result;
}

}  // namespace

void give_warning() {
  if (!is_pending.load(std::memory_order_relaxed)) return;
  std::string message;
  {
    const std::lock_guard<std::mutex> lock(pending_mutex);
    message.swap(pending);
    is_pending = false;
  }
  if (message.empty()) return;
  loom::glue::warn_python(message);
}

Format checked_format(int64_t format, const char* op) {
  const Format base = without_rule(format);
  TORCH_CHECK_VALUE(format >= 0 && is_known(static_cast<int64_t>(base)), op, ": ", format,
                    format == kNone ? " (Invalid)" : "", " is no data format that values can have");
  TORCH_CHECK_VALUE(has_rule(base, rule_of(format)), op, ": converter ",
                    static_cast<int64_t>(rule_of(format)), " has no rule for format ",
                    static_cast<int64_t>(base));
  return static_cast<Format>(format);
}

void check_floating(const at::Tensor& tensor, const char* op) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16,
                   op, ": a tensor of ", type,
                   " where floating-point values are due (float32, float64, float16, bfloat16)");
}

at::Tensor as_floats(const at::Tensor& tensor) { return tensor.to(at::kFloat).contiguous().resolve_neg(); }

Counts convert(Format format, Format first, const at::Tensor& in, const at::Tensor& out) {
  const int64_t count = in.numel();
  if (count == 0) return {};
  const float* from = in.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  const bool has_rows = is_block(format) && in.dim() != 0 && in.size(-1) % kBlock != 0;
  // Units that a thread may begin at: rows where a row ends a block, else whole vectors.
  const int64_t unit = has_rows ? in.size(-1) : 4 * kBlock;
  const int64_t num_units = (count + unit - 1) / unit;
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % 64 == 0;
  const bool streams = !has_rows && from != to && is_aligned && count * 4 >= kStreamedBytes;
  std::atomic<int64_t> values{0}, blocks{0};
  const auto& best = kernels();
  at::parallel_for(0, num_units, std::max<int64_t>(1, kGrain / unit), [&](int64_t begin, int64_t end) {
    const int64_t first_element = begin * unit, last_element = std::min(count, end * unit);
    Counts counts;
    if (const Rule rule = rule_of(static_cast<int64_t>(format)); rule != Rule::kPyBuda) {
      const int64_t columns = has_rows ? unit : last_element - first_element;
      const float* source = from + first_element;
      if (first != Format::kInvalid) {
        best.quantize(first, Format::kInvalid, source, to + first_element, 1, last_element - first_element,
                      false, counts);
        source = to + first_element;
      }
      tensix::convert(without_rule(static_cast<int64_t>(format)), rule,
                      is_from_wide(static_cast<int64_t>(format)), source, to + first_element,
                      has_rows ? end - begin : 1, columns, counts);
    } else if (has_rows) {
      best.quantize(format, first, from + first_element, to + first_element, end - begin, unit, streams,
                    counts);
    } else {
      best.quantize(format, first, from + first_element, to + first_element, 1, last_element - first_element,
                    streams, counts);
    }
    values += counts.values;
    blocks += counts.blocks;
  });
  return {values, blocks};
}

Counts convert_reported(Format format, Format first, const at::Tensor& in, const at::Tensor& out,
                        c10::string_view op) {
  const Counts counts = convert(format, first, in, out);
  report(counts, op);
  return counts;
}

at::Tensor quantize(const at::Tensor& self, int64_t format, int64_t first, int64_t grad_format) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("loom_numerics::quantize", "")
          .typed<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, c10::string_view)>();
  return op.call(self, format, first, grad_format, "quantize");
}

void register_conversions() {
  torch::Library& engine = loom::glue::library(loom::glue::kEngineOps, kLibrary);
  engine.impl("quantize", &quantize_cpu);
  engine.impl("quantize_", &quantize_inplace_cpu);
  engine.impl("quantize.out", &quantize_out_cpu);
  engine.impl("quantize_counted", &quantize_counted_cpu);
  engine.impl("renew_", &renew_cpu);
  torch::Library& meta = loom::glue::library(c10::DispatchKey::Meta, kLibrary);
  meta.impl("quantize", &quantize_meta);
  meta.impl("quantize_", &quantize_inplace_meta);
  meta.impl("quantize.out", &quantize_out_meta);
  meta.impl("quantize_counted", &quantize_counted_meta);
  meta.impl("renew_", &renew_meta);
  torch::Library& any = loom::glue::library(c10::DispatchKey::CompositeImplicitAutograd, kLibrary);
  any.impl("_totals", &totals);
}

}  // namespace loom::numerics::glue
