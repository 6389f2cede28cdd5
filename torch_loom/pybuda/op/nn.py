"""Ops of neural networks, and modules that own their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.module import PyBudaModule
from torch_loom.pybuda.op.convolution import Conv2d, Conv2dTranspose
from torch_loom.pybuda.op.eltwise_binary import Add
from torch_loom.pybuda.op.matmul import Matmul, SparseMatmul
from torch_loom.pybuda.op.normalization import Batchnorm, Layernorm, LogSoftmax, Softmax
from torch_loom.pybuda.op.pooling import AvgPool2d, MaxPool1d, MaxPool2d
from torch_loom.pybuda.parameter import Parameter

__all__ = [
    "AvgPool2dModule",
    "Batchnorm",
    "Conv2dModule",
    "ConvTranspose2dModule",
    "Layernorm",
    "Linear",
    "LogSoftmax",
    "MaxPool1dModule",
    "MaxPool2dModule",
    "Softmax",
    "SparseMatmulModule",
]


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


class Linear(PyBudaModule):
    """``y = x W + b`` with ``W`` (in_features, out_features) and ``b`` (1, out_features)."""

    def __init__(self, name: str, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(name)
        scale = in_features**-0.5
        self.weights = Parameter(torch.empty(in_features, out_features).uniform_(-scale, scale))
        self.bias = Parameter(torch.empty(1, out_features).uniform_(-scale, scale)) if bias else None

    def forward(self, activations: Any) -> Any:
        """Return the product plus bias."""
        product = Matmul(f"{self.name}.matmul", activations, self.weights)
        return product if self.bias is None else Add(f"{self.name}.bias", product, self.bias)


class _Convolution(PyBudaModule):
    """A convolution with weights of its own."""

    weights: Parameter
    bias: Parameter | None
    _op: Callable[..., Any]
    _is_transposed = False

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = "same",
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(name)
        if padding_mode != "zeros":
            raise PyBudaError(f"padding_mode {padding_mode!r} is not 'zeros': pad with op.Pad(mode=…) first")
        first, second = (in_channels, out_channels) if self._is_transposed else (out_channels, in_channels)
        shape = (first, second // groups, *_pair(kernel_size))
        scale = math.prod(shape[1:]) ** -0.5
        self.weights = Parameter(torch.empty(shape).uniform_(-scale, scale))
        self.bias = Parameter(torch.empty(out_channels).uniform_(-scale, scale)) if bias else None
        self._arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def forward(self, activations: Any) -> Any:
        """Return the convolution."""
        return self._op(f"{self.name}.conv", activations, self.weights, self.bias, **self._arguments)


class Conv2dModule(_Convolution):
    """Convolution with weights of its own."""

    _op = staticmethod(Conv2d)


class ConvTranspose2dModule(_Convolution):
    """Transposed convolution with weights of its own."""

    _op = staticmethod(Conv2dTranspose)
    _is_transposed = True

    def __init__(self, *args: Any, output_padding: Any = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arguments["output_padding"] = output_padding


class _Pool(PyBudaModule):
    """A pooling op, with its arguments beside the activations."""

    _op: Callable[..., Any]
    _kind: str

    def __init__(self, name: str, kernel_size: Any, **arguments: Any) -> None:
        super().__init__(name)
        self._arguments = {"kernel_size": kernel_size, **arguments}

    def forward(self, activations: Any) -> Any:
        """Return a value for each window."""
        return self._op(f"{self.name}.{self._kind}", activations, **self._arguments)


class MaxPool1dModule(_Pool):
    """Maximum of windows, as the op MaxPool1d."""

    _op, _kind = staticmethod(MaxPool1d), "max_pool1d"


class MaxPool2dModule(_Pool):
    """Maximum of windows, as the op MaxPool2d."""

    _op, _kind = staticmethod(MaxPool2d), "max_pool2d"


class AvgPool2dModule(_Pool):
    """Mean of windows, as the op AvgPool2d."""

    _op, _kind = staticmethod(AvgPool2d), "avg_pool2d"


class SparseMatmulModule(PyBudaModule):
    """Product of a constant sparse matrix and the input."""

    def __init__(self, name: str, sparse: torch.Tensor) -> None:
        super().__init__(name)
        self.add_constant("sparse")
        self.set_constant("sparse", sparse)

    def forward(self, activations: Any) -> Any:
        """Return the product."""
        return SparseMatmul(f"{self.name}.matmul", self.get_constant("sparse"), activations)
