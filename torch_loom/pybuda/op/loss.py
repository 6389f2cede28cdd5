"""Modules of losses."""

from __future__ import annotations

from typing import Any

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.module import PyBudaModule
from torch_loom.pybuda.op.eltwise_binary import Multiply, Subtract
from torch_loom.pybuda.op.eltwise_unary import Abs
from torch_loom.pybuda.op.normalization import LogSoftmax
from torch_loom.pybuda.op.reduce import ReduceAvg, ReduceSum


class CrossEntropyLoss(PyBudaModule):
    """Cross entropy of predictions (…, samples, classes) and one-hot labels of their shape.

    Summed over the classes, averaged over the samples. The maximum is taken off before the exponentials, so
    large predictions do not overflow.
    """

    def forward(self, predictions: Any, labels: Any) -> Any:
        """Return the loss, of size 1 along the last two dimensions."""
        logs = LogSoftmax(f"{self.name}.log_softmax", predictions, dim=-1)
        chosen = Multiply(f"{self.name}.chosen", labels, logs)
        entropy = Multiply(f"{self.name}.negative", ReduceSum(f"{self.name}.sum", chosen, -1), -1.0)
        return ReduceAvg(f"{self.name}.average", entropy, -2) if len(entropy.shape) > 1 else entropy


class L1Loss(PyBudaModule):
    """Absolute differences: mean (``avg``) or ``sum`` over the last two dimensions, or all (``none``)."""

    def __init__(self, name: str, reduction: str = "avg") -> None:
        super().__init__(name)
        self.reduction = reduction

    def forward(self, prediction: Any, labels: Any) -> Any:
        """Return the loss.

        Raises:
            PyBudaError: another reduction.
        """
        difference = Abs(f"{self.name}.abs", Subtract(f"{self.name}.sub", prediction, labels))
        if self.reduction == "none":
            return difference
        reducers = {"avg": ReduceAvg, "sum": ReduceSum}
        if self.reduction not in reducers:
            raise PyBudaError(f"reduction {self.reduction!r} is none of 'avg', 'sum', 'none'")
        reduce = reducers[self.reduction]
        for dim in range(-1, -1 - min(2, len(difference.shape)), -1):
            difference = reduce(f"{self.name}.reduce{dim}", difference, dim)
        return difference
