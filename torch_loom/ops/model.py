"""What an entry of the op table is made of. Imports nothing of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

SHAPE_CLASSES: dict[str, str] = {
    "bytes_moved": "data.elementwise",
    "elementwise": "data.elementwise",
    "reduction": "rows.reduction",
    "scan": "data.scan",
    "matmul": "products.matmul",
    "convolution": "products.convolution",
    "attention": "products.attention",
    "normalisation": "rows.layer_norm",
    "softmax": "rows.softmax",
    "pooling": "rows.pooling",
    "loss": "",
    "gather_scatter": "",
    "sort": "data.sort",
    "copy": "data.copy",
    "factory": "data.fill",
    "random": "data.random",
    "recurrent": "",
    "optimizer": "data.foreach",
    "resampling": "",
    "linear_algebra": "products.linear_algebra",
    "fourier": "",
    "view": "data.nothing",
    "host_read": "data.item",
}
"""How an op's cost follows from its operands, and which function of ``torch_loom/chips/cost/lowerings`` makes
kernels of such an op; empty: each family says that itself."""

BYTES = "data.elementwise"

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
    "host_checks": "on a GPU the host looks at its values before the kernel runs, and raises at once what a "
    "kernel would assert",
    "divides_integers": "divides whole numbers by its second tensor, where a GPU takes any without an error",
    "engine_checks": "its shape function takes arguments that the engine's kernel refuses: before such a "
    "call is queued, the kernel is tried on zeros or ones, where they take up to 64 MiB",
    "host_waits": "on a GPU the host waits for these values, unless its argument `unsafe` is true or its "
    "argument `check_errors` is false, or its arguments `min` and `max` differ",
    "calls_blas": "on a GPU PyTorch calls cuBLAS or cuBLASLt for it, which then keep a workspace",
    "one_dtype": "it promotes nothing: a call whose tensors are of two dtypes is for its kernel to refuse, "
    "and so is a complex number beside real ones or an addend that does not expand",
    "python_infers": "PyTorch's C++ shape function differs from the engine's kernel, the Python one does not",
    "borrows_whole": "PyTorch would take it apart; the engine runs it whole, as it does for itself",
    "unboxed": "called so often that it has a kernel with its own signature",
    "draws": "draws random numbers: it moves the offset of its generator as CUDA's kernel does",
}
"""What the runtime must know of an op, beside its schema."""

FLAGS = tuple(FACTS)[:15]
"""Those of the facts that a running op is asked for, in the order of their bits."""


FUSED_KERNELS: dict[str, str] = {
    "attention": "scaled dot-product attention, forward and backward",
    "attention_mask": "attention with a mask or a bias",
    "attention_dropout": "attention with dropout",
    "rnn_layer": "one direction of an LSTM layer over a whole sequence, in float32",
    "rnn_cell": "what follows the matrix products in the cells of LSTM and GRU",
    "foreach": "ops on lists of tensors, as optimizers use them",
    "optimizer": "whole steps of optimizers",
    "attention_strides": "attention of operands whose rows are not consecutive elements",
    "rms_norm": "normalisation by the root mean square, forward and backward",
}
"""What a chip's ``fused_kernels`` may name, in the order of ``FusedKernel`` in ``runtime/chip.h``.

A chip that does not name a kernel lacks it: the parts of its ops are commands of their own.
"""


Flops: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...]], int]
"""A number of operations, from the sizes of the matrix and of the result; a multiply-add counts as two."""


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
        lowering: what makes kernels of its ops, where it is not that of their shape class.
        bytes_only: why there is none, and the time is that of the bytes that an op moves.
        flops: operations of a call; of linear algebra alone, whose time follows from their number.
        matrix: which of its tensors is the matrix whose sizes ``flops`` takes.
        fused: for a kernel of :data:`FUSED_KERNELS`, more ops of the family: each is one command where the
            chip has the kernel, and elsewhere its parts are.
        facts: for each of :data:`FACTS`, the ops that it holds for, separated by blanks. Here a name without
            an overload is the overload that has none, and ``"copy_.*"`` is all overloads.
    """

    name: str
    shape_class: str
    ops: str
    lowering: str = ""
    bytes_only: str = ""
    flops: Flops | None = None
    matrix: int = 0
    fused: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shape_class not in SHAPE_CLASSES:
            raise ValueError(
                f"{self.name}: shape_class={self.shape_class!r} is none of {tuple(SHAPE_CLASSES)}"
            )
        if not self.kernels or (self.lowering and self.bytes_only):
            raise ValueError(f"{self.name}: give a lowering, or why the time is that of the bytes it moves")
        if (self.shape_class == "linear_algebra") != (self.flops is not None):
            raise ValueError(f"{self.name}: flops are given for linear_algebra alone, and always")
        if unknown := set(self.fused) - set(FUSED_KERNELS):
            raise ValueError(f"{self.name}: fused {sorted(unknown)} are none of {tuple(FUSED_KERNELS)}")
        if unknown := set(self.facts) - set(FACTS):
            raise ValueError(f"{self.name}: facts {sorted(unknown)} are none of {tuple(FACTS)}")

    @property
    def kernels(self) -> str:
        """The function of ``torch_loom/chips/cost/lowerings`` that makes kernels of its ops."""
        return self.lowering or (BYTES if self.bytes_only else SHAPE_CLASSES[self.shape_class])

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names of its ops, fused ones included."""
        return tuple(" ".join((self.ops, *self.fused.values())).split())
