"""A matrix product under an emulation: what other products are made of.

A handler of a function takes the emulation, the precision, the format of the result and the function's own
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torch_loom.numerics._ops import NONE, WHOLE, ops
from torch_loom.numerics.emulation.operands import mark, operand
from torch_loom.numerics.emulation.precision import Precision
from torch_loom.numerics.formats import DataFormat

if TYPE_CHECKING:
    from torch_loom.numerics.emulation.mode import Emulation

Handler = Callable[..., Any]
# What a handler returns for arguments that it does not take: the function is then computed as any other.
NOT_TAKEN = object()
# For arguments that PyTorch refuses, where the ops of ``loom_numerics`` would not.
UNFIT = object()


def fidelity_of(how: Precision) -> int:
    """The fidelity of sums of products as the ops take it."""
    how = how.summed
    return WHOLE if how.fits and not how.silicon else how.fidelity.value


def matmul(emulation: Emulation, how: Precision, out: DataFormat | None, a: Tensor, b: Tensor) -> Tensor:
    a = operand(a, how, emulation.weights, exact=True)
    b = operand(b, how, emulation.weights, exact=True)
    out_format = NONE if out is None else how.made(out)
    result: Tensor = ops.matmul(
        a, b, fidelity_of(how), how.accumulate.value, how.silicon, out_format, how.made(how.format)
    )
    return result if out is None else mark(result, out)
