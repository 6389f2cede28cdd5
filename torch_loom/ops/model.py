"""What an entry of the op table is made of. Imports nothing of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["FACTS", "FLAGS", "SHAPE_CLASSES", "Call", "Cost", "Family", "Tensor"]

SHAPE_CLASSES = (
    *("bytes_moved", "elementwise", "reduction", "scan", "matmul", "convolution", "attention"),
    *("normalisation", "softmax", "pooling", "loss", "gather_scatter", "sort", "copy", "factory", "random"),
    *("recurrent", "optimizer", "resampling", "linear_algebra", "fourier", "view", "host_read"),
)
"""How an op's cost follows from its operands, in the order of ``ShapeClass`` in ``runtime/op_record.h``."""

FACTS: dict[str, str] = {
    "host_scalars": "takes tensors of the CPU without dimensions beside those of the device",
    "host_tensors": "takes whole tensors of the CPU, as CUDA's kernel does: lengths, steps of optimizers",
    "host_lists": "takes lists of tensors of the CPU: indices",
    "makes_contents": "makes the contents of its one result from no tensor but host scalars: under the lazy "
    "policy it fills the host side of a result that waits for device memory",
    "moves_data": "moves data or makes it without arithmetic: native on every chip, in every dtype",
    "not_borrowed": "must not run on lent memory: its results are layouts or types that the device lacks",
    "sized_by_numbers": "its numbers, not only its sizes, decide how many elements it returns",
    "mask_counted": "the host waits for the size of its result only where a mask is among its indices",
    "engine_infers": "its shape function differs from the engine's kernel, which is run on zeros to learn "
    "what the op returns",
    "python_infers": "PyTorch's C++ shape function differs from the engine's kernel, the Python one does not",
    "host_checks": "on a GPU the host looks at its values before the kernel runs, and raises at once what a "
    "kernel would assert",
    "divides_integers": "divides whole numbers by its second tensor, where a GPU takes any without an error",
    "engine_checks": "its shape function takes arguments that the engine's kernel refuses: before such a "
    "call is queued, the kernel is tried on zeros or ones, where they take up to 64 MiB",
    "host_waits": "on a GPU the host waits for these values, unless its argument `unsafe` is true or its "
    "argument `check_errors` is false",
    "calls_blas": "on a GPU PyTorch calls cuBLAS or cuBLASLt for it, which then keep a workspace",
    "borrows_whole": "PyTorch would take it apart; the engine runs it whole, as it does for itself",
    "unboxed": "called so often that it has a kernel with its own signature",
}
"""What the runtime must know of an op, beside its schema."""

FLAGS = tuple(FACTS)[:14]
"""Those of the facts that a running op is asked for, in the order of their bits."""


@dataclass(frozen=True)
class Tensor:
    """The metadata of an operand: sizes, and the dtype's name without ``torch.``."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Call:
    """One call of an op.

    Attributes:
        op: ``"aten::add.Tensor"``.
        inputs: its tensors, lists of tensors in their places, in the order of the schema; duplicates kept.
        outputs: what it returns, or writes.
        attributes: its other arguments by name, those that were given.
    """

    op: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overload(self) -> str:
        """The name behind the dot; empty where there is none."""
        return self.op.partition(".")[2]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or what it is where it was not given."""
        return self.attributes.get(name, default)


Cost: TypeAlias = Callable[[Call], int]
"""A number of floating-point operations. A multiplication and an addition are two operations."""


def no_flops(call: Call) -> int:
    """Return 0: data is moved, not computed."""
    return 0


@dataclass(frozen=True)
class Family:
    """Ops that cost alike, and what the runtime must know of some of them.

    An op stands for all its overloads, for its in-place form (``add_``), for the form with ``out=``, for
    ``_foreach_add``, and for its gradient where that has no entry of its own (``sigmoid_backward``).
    ``"max.dim"`` is one overload alone, ``"fft_*"`` all that begin so.

    Attributes:
        name: what the documents call it.
        shape_class: one of :data:`SHAPE_CLASSES`.
        ops: names without the namespace ``aten``, separated by blanks; others with theirs.
        flops: operations of a call.
        fused: ops that are several of the family's, or of others, in one kernel.
        facts: for each of :data:`FACTS`, the ops that it holds for, separated by blanks. Here a name without
            an overload is the overload that has none, and ``"copy_.*"`` is all overloads.
    """

    name: str
    shape_class: str
    ops: str
    flops: Cost = no_flops
    fused: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shape_class not in SHAPE_CLASSES:
            raise ValueError(f"{self.name}: shape_class={self.shape_class!r} is none of {SHAPE_CLASSES}")
        if unknown := set(self.facts) - set(FACTS):
            raise ValueError(f"{self.name}: facts {sorted(unknown)} are none of {tuple(FACTS)}")

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names of its ops, fused ones included."""
        return (*self.ops.split(), *self.fused.split())
