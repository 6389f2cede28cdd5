"""Sets of functions of Tensix's vector unit: ``tensix_fn_*``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.golden.sections import Array, Result, bits, compared, from_bits
from torch_loom.numerics._ops import ops

NUMBERS = {"recip": 0, "sqrt": 1, "rsqrt": 2, "exp": 3, "gelu": 4, "tanh": 5, "sigmoid": 6}
INPUTS = ("x", "x_bf16")
WORMHOLE = 0


def results(arrays: Mapping[str, Array], index: Mapping[str, Any]) -> Iterator[Result]:
    """Each array but the inputs: ``FUNCTION_fp32``, ``_bf16`` (of the inputs in bfloat16) or ``_lut``."""
    for name, wanted in arrays.items():
        if name in INPUTS:
            continue
        function, _, variant = name.partition("_")

        def compute(function: str = function, variant: str = variant) -> Array:
            values = bits(arrays["x_bf16" if variant == "bf16" else "x"])
            if function in ("sqrt", "rsqrt"):
                values = values & 0x7FFFFFFF  # the sets give roots of magnitudes
            return from_bits(ops.tensix_function(values, NUMBERS[function], variant != "bf16", WORMHOLE))

        yield compared(name, wanted, compute)
