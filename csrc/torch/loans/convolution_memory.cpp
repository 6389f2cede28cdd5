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
constexpr int64_t kDirectChannels = 64, kPictureChannels = 8;
// Weights of float32 from which on products of planes that do not fit matrix units are worth turning images,
// and up to which strided ones are not.
constexpr int64_t kHeavyWeights = int64_t{1} << 20, kLightWeights = int64_t{1} << 13;
// Larger strided results of float32 are written as images lie.
constexpr int64_t kMostTurnedBytes = int64_t{32} << 20;
// On vector units gradients of fewer weights are summed in place.
constexpr int64_t kLightGradient = int64_t{1} << 18, kLightWindowedGradient = int64_t{1} << 19;
// Places of a window of 3 x 3.
constexpr int64_t kSmallWindow = 9;
// Sums of images for which float32 on matrix units has room, and channels that are too few for them.
constexpr int64_t kMostSumBytes = int64_t{32} << 20, kThinChannels = 32;
// Groups of so few channels have float32 kernels of their own.
constexpr int64_t kDirectGroup = 4;
// Depthwise gradients with channels innermost are summed in so many parts of an image.
constexpr int64_t kDepthwiseParts = 8;
// Winograd's gradients: tiles of 4 x 4 outputs become 6 x 6 values.
constexpr int64_t kWinogradTile = 4, kWinogradValues = 36;
// Fourier's: 32 x 17 complex numbers a tile; of planes of these sizes, of enough images or few enough
// weights.
constexpr int64_t kFourierBytes = 32 * 17 * 8, kLeastFourierSize = 24, kMostFourierSize = 30;
constexpr int64_t kLeastFourierImages = 16, kMostFourierPairs = 4096;
// Gradients of weights: as many parts as fill an H100's or H200's multiprocessors, each of so many places.
constexpr int64_t kMultiprocessors = 132, kTile = 128, kThinTile = 64, kMostThinParts = 13;
constexpr int64_t kPlacesOfPart = 1792, kNarrowPlacesOfPart = 6272, kCounterBytes = 1008;
// Of pictures, whose channels are padded, tiles are so long.
constexpr int64_t kPictureTile = 256;

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
  bool is_forward() const { return role == ConvolutionRole::kForward; }
  bool is_of_weight() const { return role == ConvolutionRole::kGradientOfWeight; }
  bool keeps_size() const { return source_places == out_places; }
  int64_t channel_pairs() const { return channels * results; }
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
int64_t pointwise_bytes(const Convolution& call) {
  const int64_t channel_pairs = call.channel_pairs();
  if (!call.on_matrix_units) {
    return call.is_of_weight() && channel_pairs >= kLightGradient ? call.turned() : 0;
  }
  if (!call.keeps_size()) {
    if (call.is_narrow || call.is_of_weight()) return call.turned();
    if (channel_pairs <= kLightWeights) return 0;
    const bool is_written_as_it_lies = call.is_forward() && call.out_bytes > kMostTurnedBytes;
    return is_written_as_it_lies ? call.source_bytes + call.weight_bytes + kOwnBytes : call.turned();
  }
  const bool is_aligned = call.out_places * call.item % kPlaneBytes == 0;
  const bool is_heavy = !is_aligned && channel_pairs >= kHeavyWeights;
  if (call.is_of_weight()) {
    // A product for each image, and then their sum.
    const int64_t sums = call.images * call.sum_bytes();
    if (is_heavy) return call.turned();
    if (call.is_narrow) return call.results > call.channels ? sums : std::min(sums, call.turned());
    const bool is_turned = call.channels <= kThinChannels || (sums > kMostSumBytes && !is_aligned);
    return is_turned ? call.turned() : sums;
  }
  if (is_aligned) return 0;
  const bool is_turned = call.is_narrow && (call.is_forward() || call.channels >= call.results);
  return is_turned || is_heavy ? call.turned() : 0;
}

// Convolutions by Fourier transforms of tiles of 32 x 32, of planes that fill them.
int64_t fourier_bytes(const Convolution& call, const at::Tensor& out) {
  if (!call.keeps_size() || out.dim() != 4 || call.window < kSmallWindow) return 0;
  if (!call.is_dense() || call.has_odd_channels()) return 0;
  const int64_t size = std::max(out.size(2), out.size(3));
  if (size < kLeastFourierSize) return 0;
  const int64_t pairs = call.channel_pairs();
  const bool is_one_tile = size <= kMostFourierSize;
  if (is_one_tile && call.images < kLeastFourierImages) return 0;
  if (call.is_forward()) {
    // The weights are turned around first.
    return is_one_tile ? 2 * (call.images * call.channels + pairs) * kFourierBytes + call.weight_bytes : 0;
  }
  if (!is_one_tile && pairs > kMostFourierPairs) return 0;
  return ((is_one_tile ? 1 : 2) * call.images * (call.channels + call.results) + pairs) * kFourierBytes;
}

// Float32 on vector units works on images as they lie, but by Fourier transforms and for gradients of
// weights.
int64_t vector_bytes(const Convolution& call, const at::Tensor& out) {
  if (!call.is_of_weight()) return fourier_bytes(call, out);
  if (call.window == kSmallWindow && call.keeps_size() && call.is_dense() && out.dim() == 4) {
    const int64_t tiles =
        call.images * ceil_divide(out.size(2), kWinogradTile) * ceil_divide(out.size(3), kWinogradTile);
    const int64_t values = call.channel_pairs() + tiles * (call.channels + call.results);
    return values * kWinogradValues * call.item;
  }
  return call.weights() >= kLightWindowedGradient ? call.turned() + call.weight_bytes : 0;
}

int64_t picture_part_bytes(const Convolution& call) {
  const int64_t depth = call.padded_channels() * call.window;
  const int64_t tiles = ceil_divide(call.results, kTile) * ceil_divide(depth, kPictureTile);
  const int64_t parts = std::min(kMultiprocessors / tiles, call.images * call.out_places / kPlacesOfPart);
  return parts > 1 ? parts * call.results * depth * static_cast<int64_t>(sizeof(float)) : 0;
}

// What sums of parts of a gradient of weights take: whatever fills the multiprocessors.
int64_t part_bytes(const Convolution& call) {
  if (call.is_of_weight() && call.is_dense() && call.has_odd_channels() && call.channels <= kPictureChannels)
    return picture_part_bytes(call);
  if (!call.is_of_weight() || !call.is_dense() || call.window != kSmallWindow) return 0;
  const bool is_thin = call.results <= kThinTile;
  const int64_t tile = is_thin ? kThinTile : kTile;
  const int64_t tiles = ceil_divide(call.results, tile) * ceil_divide(call.channels * call.window, tile);
  const int64_t places_of_part = call.is_narrow && !is_thin ? kNarrowPlacesOfPart : kPlacesOfPart;
  int64_t parts = std::min(kMultiprocessors / tiles, call.images * call.out_places / places_of_part);
  if (call.is_narrow && is_thin) parts = std::min(parts, kMostThinParts);
  return parts > 1 ? parts * call.sum_bytes() + kCounterBytes : 0;
}

int64_t channels_last_bytes(const Convolution& call) {
  if (!call.is_narrow) return 0;
  if (call.is_depthwise()) {
    return call.is_of_weight() ? call.images * kDepthwiseParts * call.sum_bytes() : 0;
  }
  if (!call.has_odd_channels() || !call.is_dense() || call.window == 1) return 0;
  if (call.is_shallow() && !call.is_of_weight()) return 0;
  return (call.source_bytes + call.weight_bytes) / call.channels * call.padded_channels() + kOwnBytes;
}

int64_t windowed_bytes(const Convolution& call, bool has_patches) {
  if (call.is_dense() && call.has_odd_channels()) {
    if (call.is_narrow ? call.is_shallow() && !call.is_of_weight()
                       : call.is_shallow() || (has_patches && !call.is_of_weight())) {
      return 0;
    }
  }
  if (!call.is_narrow && call.role == ConvolutionRole::kGradientOfSource && !call.is_dense() &&
      call.group <= kDirectGroup) {
    return 0;
  }
  // Float32 of pictures is turned, but no channels are added.
  const bool is_picture = !call.is_narrow && call.is_forward() && call.channels <= kPictureChannels;
  const int64_t padded = is_picture ? call.channels : call.padded_channels();
  const int64_t group = call.is_dense() ? padded : call.group;
  const bool is_written_as_it_lies =
      call.is_forward() && !call.is_narrow && !call.has_odd_channels() && call.results <= kDirectChannels;
  return call.source_bytes / call.channels * padded + call.weight_bytes / call.group * group +
         (is_written_as_it_lies ? 0 : call.out_bytes) + kOwnBytes + part_bytes(call);
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
  const Convolution call{.role = role,
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
  const auto bytes = [&]() -> int64_t {
    if (is_channels_last(source) || is_channels_last(weight)) return channels_last_bytes(call);
    if (call.is_depthwise()) return 0;  // kernels of PyTorch's own
    if (call.window == 1) return pointwise_bytes(call);
    if (!call.on_matrix_units) return vector_bytes(call, out);
    // Windows that do not overlap, as of patches, are no work for float32's kernels with channels innermost.
    return windowed_bytes(call, out.size(-1) * weight.size(-1) <= source.size(-1));
  };
  return static_cast<size_t>(bytes());
}

}  // namespace loom::glue
