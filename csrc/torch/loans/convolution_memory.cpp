#include "torch/loans/convolution_memory.h"

#include <c10/util/accumulate.h>

namespace loom::glue {

namespace {

// The library's own words, behind the images.
constexpr size_t kOwnBytes = 16;
// Matrix units take multiples of so many bytes; products take planes as they lie that are multiples of these.
constexpr int64_t kGrainBytes = 16, kPlaneBytes = 8;
// Sums over so few elements, as of small windows over pictures, are made of images as they lie.
constexpr int64_t kDirectDepth = 64;
// Kernels of float32 that make so many channels at a time write them as images lie.
constexpr int64_t kDirectChannels = 64;
// Gradients of weights of float32 are summed in eight parts.
constexpr int64_t kSumBytes = 8 * sizeof(float);

bool is_channels_last(const at::Tensor& tensor) { return !tensor.is_contiguous() && tensor.stride(1) == 1; }

int64_t places(const at::Tensor& tensor) { return c10::multiply_integers(tensor.sizes().slice(2)); }

}  // namespace

size_t convolution_memory(ConvolutionRole role, const at::Tensor& source, const at::Tensor& weight,
                          const at::Tensor& out, bool in_tf32) {
  const auto item = static_cast<int64_t>(source.itemsize());
  const bool is_narrow = item == 2 && source.is_floating_point();
  if ((!is_narrow && source.scalar_type() != at::kFloat) || source.dim() < 3 || source.dim() > 5) return 0;
  if (weight.dim() != source.dim() || out.dim() != source.dim()) return 0;
  if (source.numel() == 0 || weight.numel() == 0) return 0;
  // A transposed one's weights have the channels of the result second.
  if (weight.size(0) != out.size(1) || is_channels_last(source) || is_channels_last(weight)) return 0;
  const int64_t channels = source.size(1), window = places(weight);
  if (channels != weight.size(1) && weight.size(1) == 1) return 0;  // depthwise: kernels of PyTorch's own
  if (window == 1) {
    const bool is_product = places(source) == places(out);
    if (is_product && places(out) * item % kPlaneBytes == 0) {
      const bool is_summed = role == ConvolutionRole::kGradientOfWeight && !is_narrow;
      return is_summed ? static_cast<size_t>(weight.numel() * kSumBytes) : 0;
    }
    return static_cast<size_t>((source.numel() + out.numel()) * item) + kOwnBytes;
  }
  const bool on_matrix_units = is_narrow || in_tf32;
  const int64_t grain = kGrainBytes / item;
  const bool is_few = channels % grain != 0;
  // Windows that do not overlap, as of patches, are no work for float32's kernels with channels innermost.
  const bool has_patches = out.size(-1) * weight.size(-1) <= source.size(-1);
  if (is_few && (channels * window <= kDirectDepth || (!is_narrow && has_patches))) return 0;
  const int64_t padded = on_matrix_units ? (channels + grain - 1) / grain * grain : channels;
  const int64_t of_group = channels == weight.size(1) ? padded : weight.size(1);
  const bool is_written_as_it_lies =
      role == ConvolutionRole::kForward && !is_narrow && !is_few && weight.size(0) <= kDirectChannels;
  const int64_t items = source.numel() / channels * padded + weight.numel() / weight.size(1) * of_group +
                        (is_written_as_it_lies ? 0 : out.numel());
  return static_cast<size_t>(items * item) + kOwnBytes;
}

}  // namespace loom::glue
