// What a quantized tensor's integers mean: its quantizer. Those of a scale per channel hold tensors.
#pragma once

#include <ATen/quantized/Quantizer.h>

#include <utility>

namespace loom::glue {

// The same quantizer with its tensors exchanged for what `exchange` makes of them.
template <typename F>
at::QuantizerPtr with_parts(at::QuantizerPtr quantizer, F&& exchange) {
  const c10::QScheme scheme = quantizer->qscheme();
  if (scheme != c10::kPerChannelAffine && scheme != c10::kPerChannelAffineFloatQParams) return quantizer;
  const auto* own = static_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
  at::Tensor scales = exchange(own->scales()), zero_points = exchange(own->zero_points());
  if (scheme == c10::kPerChannelAffine) {
    return c10::make_intrusive<at::PerChannelAffineQuantizer>(quantizer->scalar_type(), std::move(scales),
                                                              std::move(zero_points), own->axis());
  }
  return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(
      quantizer->scalar_type(), std::move(scales), std::move(zero_points), own->axis());
}

}  // namespace loom::glue
