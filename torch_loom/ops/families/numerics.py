"""The ops of torch_loom.numerics: data formats and products with math fidelity; each overload is named."""

from __future__ import annotations

from torch_loom.ops.model import Family

FAMILIES = (
    Family(
        "data formats",
        "elementwise",
        "loom_numerics::quantize loom_numerics::quantize_ loom_numerics::quantize.out "
        "loom_numerics::quantize_counted loom_numerics::renew_ loom_numerics::operand",
        # A core rounds as it unpacks an operand or packs a result, within an op's kernel.
        lowering="data.nothing",
    ),
    Family(
        "elements as a chip computes them",
        "elementwise",
        "loom_numerics::elementwise loom_numerics::function",
    ),
    Family("packed tiles", "bytes_moved", "loom_numerics::pack loom_numerics::unpack"),
    Family(
        "matrix products with fidelity",
        "matmul",
        "loom_numerics::matmul loom_numerics::matmul.out loom_numerics::tensor_core_matmul",
    ),
    Family("linear layers with fidelity", "matmul", "loom_numerics::linear", lowering="products.linear"),
    Family("convolutions with fidelity", "convolution", "loom_numerics::convolution"),
    Family(
        "gradients of convolutions with fidelity",
        "convolution",
        "loom_numerics::convolution_backward",
        lowering="products.convolution_backward",
    ),
)
