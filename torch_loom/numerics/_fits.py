"""Whether operands are what PyTorch's functions take. What is not, PyTorch refuses in its own words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torch import Tensor

from torch_loom.errors import OperandError


def refuse(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> NoReturn:
    """Raise what PyTorch raises for arguments that do not fit.

    Raises:
        OperandError: PyTorch takes them.
    """
    func(*args, **kwargs)
    shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in args if isinstance(each, Tensor))
    raise OperandError(f"{getattr(func, '__name__', func)}: no rule for operands of {shapes}")


def matrices(a: Tensor, b: Tensor) -> bool:
    """Whether [M, K] and [K, N] can be multiplied."""
    return a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]


def batches(a: Tensor, b: Tensor) -> bool:
    """Whether [B, M, K] and [B, K, N] can be multiplied."""
    return a.dim() == b.dim() == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]


def vectors(a: Tensor, b: Tensor) -> bool:
    """Whether [K] and [K] can be multiplied."""
    return a.dim() == b.dim() == 1 and a.shape[0] == b.shape[0]


def vector(matrix: Tensor, other: Tensor) -> bool:
    """Whether [M, K] and [K] can be multiplied."""
    return matrix.dim() == 2 and other.dim() == 1 and matrix.shape[1] == other.shape[0]


def expands(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether a tensor can be added to a result of a shape."""
    pairs = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.dim() <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def is_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> bool:
    """Whether a batch can be convolved; one value of a list stands for all dimensions."""
    rank = weight.dim() - 2
    lists = (stride, padding, dilation, output_padding)
    if not 1 <= rank <= 3 or x.dim() != weight.dim() or groups < 1 or weight.shape[0] % groups:
        return False
    if any(len(values) not in (1, rank) for values in lists):
        return False
    steps, edges, spaces, after = ([*values] * rank if len(values) == 1 else [*values] for values in lists)
    if min(steps) < 1 or min(edges) < 0 or min(spaces) < 1 or min(after) < 0:
        return False
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    filters = weight.shape[1] * groups if transposed else weight.shape[0]
    if x.shape[1] != channels or not (bias is None or (bias.dim() == 1 and bias.shape[0] == filters)):
        return False
    for i in range(rank):
        reach = spaces[i] * (weight.shape[i + 2] - 1) + 1
        if transposed:
            if after[i] >= steps[i] and after[i] >= spaces[i]:
                return False
            if (x.shape[i + 2] - 1) * steps[i] - 2 * edges[i] + reach + after[i] < 1:
                return False
        elif x.shape[i + 2] + 2 * edges[i] < reach:
            return False
    return True
