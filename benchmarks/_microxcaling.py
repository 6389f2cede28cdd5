"""Beside microxcaling, PyTorch code that emulates block formats: its times over ours on the same tensors.

It is on no package index: with its sources on PYTHONPATH, ``mx`` can be imported and the rows are measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._common import Budget, Measured, alternate
from torch_loom.numerics import DataFormat, quantize

CPU = torch.device("cpu")
# Its elements of a block are a sign and as many magnitude bits as ours; 16 share an exponent here, too.
PAIRS = {"int8": DataFormat.Bfp8_b, "int4": DataFormat.Bfp4_b, "int2": DataFormat.Bfp2_b}
BLOCK = 16


class Microxcaling:
    """Its functions, in our blocks of 16 and with results in bfloat16.

    Raises:
        ImportError: it is not here.
    """

    def __init__(self) -> None:
        self._ops = importlib.import_module("mx.mx_ops")
        self._linear = importlib.import_module("mx.linear").linear
        self.specs = importlib.import_module("mx.specs").finalize_mx_specs(
            {
                "w_elem_format": "int8",
                "a_elem_format": "int8",
                "scale_bits": 8,
                "block_size": BLOCK,
                "bfloat": 16,
                "custom_cuda": False,
            }
        )

    def quantize(self, x: Tensor, elements: str) -> Tensor:
        converted: Tensor = self._ops.quantize_mx_op(
            x, self.specs, elem_format=elements, block_size=BLOCK, axes=[-1]
        )
        return converted

    @contextmanager
    def linear_layers(self) -> Iterator[None]:
        """What its own injection does, for linear layers alone: projections of attention are among them."""
        exact = functional.linear

        def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
            return self._linear(input, weight, bias, mx_specs=self.specs)

        functional.linear = linear
        try:
            yield
        finally:
            functional.linear = exact


def found() -> Microxcaling | None:
    try:
        return Microxcaling()
    except ImportError as error:
        print(f"microxcaling: not measured, as it cannot be imported here ({error})", flush=True)
        return None


def _row(name: str, ours: Measured, theirs: Measured, budget: Budget) -> dict[str, object]:
    ratio = alternate(name, ours, theirs, budget).ratio
    print(f"{name:<28} microxcaling takes {ratio:6.1f} times as long", flush=True)
    return {"name": name, "ratio": ratio, "met": ratio >= 1}


def conversions(peer: Microxcaling, elements: int, budget: Budget) -> list[dict[str, object]]:
    """Each block format on the same float32 values; also reports the share of equal results."""
    x = torch.randn(elements // 1024, 1024, generator=torch.Generator().manual_seed(0))
    rows = []
    for theirs, fmt in PAIRS.items():
        names = {"x": x, "fmt": fmt, "quantize": quantize, "theirs": theirs, "peer": peer}
        row = _row(
            f"MX{theirs.upper()}, {fmt.name}",
            Measured("quantize(x, fmt)", names, CPU),
            Measured("peer.quantize(x, theirs)", names, CPU),
            budget,
        )
        equal = (peer.quantize(x, theirs) == quantize(x, fmt)).double().mean().item()
        rows.append({**row, "equal": equal})
    return rows


def forward(
    peer: Microxcaling, exact: nn.Module, emulated: Callable[[], Tensor], tokens: Tensor, budget: Budget
) -> dict[str, object]:
    """A model's forward: ours with every op emulated, theirs with the linear layers alone."""
    # Training, so that no fused kernel takes the place of the layers; the model has no dropout.
    exact.train()

    @torch.no_grad()
    def theirs() -> Tensor:
        with peer.linear_layers():
            result: Tensor = exact(tokens)
        return result

    try:
        return _row(
            "forward, linear layers alone",
            Measured("run()", {"run": emulated}, CPU),
            Measured("run()", {"run": theirs}, CPU),
            budget,
        )
    finally:
        exact.eval()
