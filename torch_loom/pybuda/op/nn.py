"""Ops of neural networks, and modules that own their parameters."""

from __future__ import annotations

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


class Conv2dModule(PyBudaModule):
    """Convolution with weights of its own."""

    weights: Parameter
    bias: Parameter | None

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
        _zeros_only(padding_mode)
        shape = (out_channels, in_channels // groups, *_pair(kernel_size))
        self._arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        _weights(self, shape, out_channels if bias else None)

    def forward(self, activations: Any) -> Any:
        """Return the convolution."""
        return Conv2d(f"{self.name}.conv", activations, self.weights, self.bias, **self._arguments)


class ConvTranspose2dModule(PyBudaModule):
    """Transposed convolution with weights of its own."""

    weights: Parameter
    bias: Parameter | None

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
        _zeros_only(padding_mode)
        shape = (in_channels, out_channels // groups, *_pair(kernel_size))
        self._arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        _weights(self, shape, out_channels if bias else None)

    def forward(self, activations: Any) -> Any:
        """Return the transposed convolution."""
        return Conv2dTranspose(f"{self.name}.conv", activations, self.weights, self.bias, **self._arguments)


class MaxPool1dModule(PyBudaModule):
    """Maximum of windows, as the op MaxPool1d."""

    def __init__(self, name: str, kernel_size: Any, **arguments: Any) -> None:
        super().__init__(name)
        self._arguments = {"kernel_size": kernel_size, **arguments}

    def forward(self, activations: Any) -> Any:
        """Return the maxima."""
        return MaxPool1d(f"{self.name}.max_pool1d", activations, **self._arguments)


class MaxPool2dModule(PyBudaModule):
    """Maximum of windows, as the op MaxPool2d."""

    def __init__(self, name: str, kernel_size: Any, **arguments: Any) -> None:
        super().__init__(name)
        self._arguments = {"kernel_size": kernel_size, **arguments}

    def forward(self, activations: Any) -> Any:
        """Return the maxima."""
        return MaxPool2d(f"{self.name}.max_pool2d", activations, **self._arguments)


class AvgPool2dModule(PyBudaModule):
    """Mean of windows, as the op AvgPool2d."""

    def __init__(self, name: str, kernel_size: Any, **arguments: Any) -> None:
        super().__init__(name)
        self._arguments = {"kernel_size": kernel_size, **arguments}

    def forward(self, activations: Any) -> Any:
        """Return the means."""
        return AvgPool2d(f"{self.name}.avg_pool2d", activations, **self._arguments)


class SparseMatmulModule(PyBudaModule):
    """Product of a constant sparse matrix and the input."""

    def __init__(self, name: str, sparse: torch.Tensor) -> None:
        super().__init__(name)
        self.add_constant("sparse")
        self.set_constant("sparse", sparse)

    def forward(self, activations: Any) -> Any:
        """Return the product."""
        return SparseMatmul(f"{self.name}.matmul", self.get_constant("sparse"), activations)


def _weights(module: Any, shape: tuple[int, ...], num_bias: int | None) -> None:
    scale = (shape[1] * shape[2] * shape[3]) ** -0.5
    module.weights = Parameter(torch.empty(shape).uniform_(-scale, scale))
    module.bias = None if num_bias is None else Parameter(torch.empty(num_bias).uniform_(-scale, scale))


def _zeros_only(padding_mode: str) -> None:
    if padding_mode != "zeros":
        raise PyBudaError(f"padding_mode {padding_mode!r} is not 'zeros': pad with op.Pad(mode=…) first")
