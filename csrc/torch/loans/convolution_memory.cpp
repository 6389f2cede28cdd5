#include "torch/loans/convolution_memory.h"

#include <c10/util/accumulate.h>

#include <algorithm>

namespace loom::glue {

namespace {

// The library's own words, behind the images.
constexpr int64_t kOwnBytes = 16;
// Matrix units take multiples of so many bytes; products take planes as they lie that are multiples of these.
constexpr int64_t kGrainBytes = 16, kPlaneBytes = 8;
// Sums over so few elements, as of small windows over pictures, are made of images as they lie.
constexpr int64_t kDirectDepth = 64;
// Kernels of float32 that make so many channels at a time write them as images lie.
constexpr int64_t kDirectChannels = 64;
// Weights of float32 from which on products of planes that do not fit matrix units are worth turning images,
// and up to which strided ones are not.
constexpr int64_t kHeavyWeights = int64_t{1} << 20, kLightWeights = int64_t{1} << 13;
// On vector units gradients of fewer weights are summed in place.
constexpr int64_t kLightGradient = int64_t{1} << 18;
// Sums of images for which float32 on matrix units has room, and channels that are too few for them.
constexpr int64_t kMostSumBytes = int64_t{32} << 20, kThinChannels = 32;
// Groups of so few channels have float32 kernels of their own.
constexpr int64_t kDirectGroup = 4;
// Depthwise gradients with channels innermost are summed in so many parts of an image.
constexpr int64_t kDepthwiseParts = 8;
// Winograd's gradients: tiles of 4 x 4 outputs become 6 x 6 values.
constexpr int64_t kWinogradTile = 4, kWinogradValues = 36;
// Gradients of weights: as many parts as fill an H100's or H200's multiprocessors, each of so many places.
constexpr int64_t kMultiprocessors = 132, kTile = 128, kThinTile = 64, kMostThinParts = 13;
constexpr int64_t kPlacesOfPart = 1792, kNarrowPlacesOfPart = 6272, kCounterBytes = 1008;

bool is_channels_last(const at::Tensor& tensor) { return !tensor.is_contiguous() && tensor.stride(1) == 1; }

int64_t places(const at::Tensor& tensor) { return c10::multiply_integers(tensor.sizes().slice(2)); }

int64_t ceil_divide(int64_t value, int64_t by) { return (value + by - 1) / by; }

struct Convolution {
  ConvolutionRole role;
  bool is_narrow, on_matrix_units;  // of two bytes; as those and TF32 are
  int64_t item;                     // bytes
  int64_t images, channels, group, results;
  int64_t window, source_places, out_places;
  int64_t source_bytes, weight_bytes, out_bytes;
  bool is_dense() const { return group == channels; }
  bool is_depthwise() const { return !is_dense() && group == 1; }
  bool is(ConvolutionRole one) const { return role == one; }
  bool is_of_weight() const { return is(ConvolutionRole::kGradientOfWeight); }
  int64_t weights() const { return weight_bytes / item; }
  int64_t sum_bytes() const { return weights() * static_cast<int64_t>(sizeof(float)); }
  int64_t padded_channels() const {
    const int64_t grain = kGrainBytes / item;
    return ceil_divide(channels, grain) * grain;
  }
  bool has_odd_channels() const { return padded_channels() != channels; }
  bool is_shallow() const { return channels * window <= kDirectDepth; }
  int64_t turned() const { return source_bytes + out_bytes + kOwnBytes; }
};

// Windows of one place.
int64_t pointwise_bytes(const Convolution& one) {
  const int64_t channel_pairs = one.channels * one.results;
  if (!one.on_matrix_units) {
    return one.is_of_weight() && channel_pairs >= kLightGradient ? one.turned() : 0;
  }
  if (one.source_places != one.out_places) {
    const bool is_direct = !one.is_narrow && !one.is_of_weight() && channel_pairs <= kLightWeights;
    return is_direct ? 0 : one.turned();
  }
  const bool is_aligned = one.out_places * one.item % kPlaneBytes == 0;
  const bool is_heavy = !is_aligned && channel_pairs >= kHeavyWeights;
  if (one.is_of_weight()) {
    // A product for each image, and then their sum.
    const int64_t sums = one.images * one.sum_bytes();
    if (is_heavy) return one.turned();
    if (one.is_narrow) return one.results > one.channels ? sums : std::min(sums, one.turned());
    const bool is_turned = one.channels <= kThinChannels || (sums > kMostSumBytes && !is_aligned);
    return is_turned ? one.turned() : sums;
  }
  if (is_aligned) return 0;
  const bool is_turned = one.is_narrow && (one.is(ConvolutionRole::kForward) || one.channels >= one.results);
  return is_turned || is_heavy ? one.turned() : 0;
}

// Float32 on vector units works on images as they lie, but for gradients of weights.
int64_t vector_bytes(const Convolution& one, const at::Tensor& out) {
  if (!one.is_of_weight()) return 0;
  if (one.window == 9 && one.source_places == one.out_places && one.is_dense() && out.dim() == 4) {
    const int64_t tiles =
        one.images * ceil_divide(out.size(2), kWinogradTile) * ceil_divide(out.size(3), kWinogradTile);
    const int64_t values = one.channels * one.results + tiles * (one.channels + one.results);
    return values * kWinogradValues * one.item;
  }
  return one.weights() >= kLightGradient * 2 ? one.turned() + one.weight_bytes : 0;
}

// What sums of parts of a gradient of weights take: whatever fills the multiprocessors.
int64_t part_bytes(const Convolution& one) {
  if (!one.is_of_weight() || !one.is_dense() || one.window != 9) return 0;
  const bool is_thin = one.results <= kThinTile;
  const int64_t tile = is_thin ? kThinTile : kTile;
  const int64_t tiles = ceil_divide(one.results, tile) * ceil_divide(one.channels * one.window, tile);
  const int64_t places_of_part = one.is_narrow && !is_thin ? kNarrowPlacesOfPart : kPlacesOfPart;
  int64_t parts = std::min(kMultiprocessors / tiles, one.images * one.out_places / places_of_part);
  if (one.is_narrow && is_thin) parts = std::min(parts, kMostThinParts);
  return parts > 1 ? parts * one.sum_bytes() + kCounterBytes : 0;
}

int64_t channels_last_bytes(const Convolution& one) {
  if (!one.is_narrow) return 0;
  if (one.is_depthwise()) {
    return one.is_of_weight() ? one.images * kDepthwiseParts * one.sum_bytes() : 0;
  }
  if (!one.has_odd_channels() || !one.is_dense() || one.window == 1) return 0;
  if (one.is_shallow() && !one.is_of_weight()) return 0;
  return (one.source_bytes + one.weight_bytes) / one.channels * one.padded_channels() + kOwnBytes;
}

int64_t windowed_bytes(const Convolution& one, bool has_patches) {
  if (one.is_dense() && one.has_odd_channels()) {
    if (one.is_narrow ? one.is_shallow() && !one.is_of_weight()
                      : one.is_shallow() || (has_patches && !one.is_of_weight())) {
      return 0;
    }
  }
  if (!one.is_narrow && one.is(ConvolutionRole::kGradientOfSource) && !one.is_dense() &&
      one.group <= kDirectGroup) {
    return 0;
  }
  const bool is_forward = one.is(ConvolutionRole::kForward);
  // Float32 of pictures is turned, but no channels are added.
  const bool is_picture = !one.is_narrow && is_forward && one.channels * 8 <= kDirectChannels;
  const int64_t padded = is_picture ? one.channels : one.padded_channels();
  const int64_t group = one.is_dense() ? padded : one.group;
  const bool is_written_as_it_lies =
      is_forward && !one.is_narrow && !one.has_odd_channels() && one.results <= kDirectChannels;
  return one.source_bytes / one.channels * padded + one.weight_bytes / one.group * group +
         (is_written_as_it_lies ? 0 : one.out_bytes) + kOwnBytes + part_bytes(one);
}

}  // namespace

size_t convolution_memory(ConvolutionRole role, const at::Tensor& source, const at::Tensor& weight,
                          const at::Tensor& out, bool in_tf32) {
  const auto item = static_cast<int64_t>(source.itemsize());
  const bool is_narrow = item == 2 && source.is_floating_point();
  if ((!is_narrow && source.scalar_type() != at::kFloat) || source.dim() < 3 || source.dim() > 5) return 0;
  if (weight.dim() != source.dim() || out.dim() != source.dim()) return 0;
  if (source.numel() == 0 || weight.numel() == 0) return 0;
  // A transposed one's weights have the channels of the result second.
  if (weight.size(0) != out.size(1)) return 0;
  Convolution one{.role = role,
                  .is_narrow = is_narrow,
                  .on_matrix_units = is_narrow || in_tf32,
                  .item = item,
                  .images = source.size(0),
                  .channels = source.size(1),
                  .group = weight.size(1),
                  .results = weight.size(0),
                  .window = places(weight),
                  .source_places = places(source),
                  .out_places = places(out),
                  .source_bytes = source.numel() * item,
                  .weight_bytes = weight.numel() * item,
                  .out_bytes = out.numel() * item};
  int64_t bytes = 0;
  if (is_channels_last(source) || is_channels_last(weight)) {
    bytes = channels_last_bytes(one);
  } else if (one.is_depthwise()) {
    bytes = 0;  // kernels of PyTorch's own
  } else if (one.window == 1) {
    bytes = pointwise_bytes(one);
  } else if (!one.on_matrix_units) {
    bytes = vector_bytes(one, out);
  } else {
    // Windows that do not overlap, as of patches, are no work for float32's kernels with channels innermost.
    bytes = windowed_bytes(one, out.size(-1) * weight.size(-1) <= source.size(-1));
  }
  return static_cast<size_t>(bytes);
}

}  // namespace loom::glue
