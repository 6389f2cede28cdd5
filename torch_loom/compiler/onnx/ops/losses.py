"""Losses, in the orders and with the weights of ONNX."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.compiler.onnx.table import Int, op

# What no class has: PyTorch wants some number.
_NONE = -100


@op("NegativeLogLikelihoodLoss")
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: Int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the class of each place, [N, C, ...] and [N, ...]."""
    shape = target.shape
    flat = x.reshape(x.shape[0], x.shape[1], -1)
    index = _NONE if ignore_index is None else ignore_index
    made = functional.nll_loss(
        flat, target.long().reshape(shape[0], -1), weight, ignore_index=index, reduction=reduction
    )
    return made.reshape(shape) if reduction == "none" else made


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: Int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Cross entropy of the softmax over classes, and the log-probabilities."""
    logs = torch.log_softmax(scores, 1)
    return nll_loss(logs, labels, weight, ignore_index=ignore_index, reduction=reduction), logs
