"""Products of matrices and vectors under :class:`TensorCores`: what each op of PyTorch's becomes.

A handler takes the mode and the op's arguments, and returns NotImplemented for operands that a GPU multiplies
without matrix instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import _fits

if TYPE_CHECKING:
    from torch_loom.numerics.tensor_cores.emulation import TensorCores

Handler = Callable[..., Any]


class UnfitError(Exception):
    """What a handler raises for operands that PyTorch refuses."""


def check(fits: bool) -> None:
    """Leave operands that do not fit to PyTorch's own error."""
    if not fits:
        raise UnfitError


aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_FLOATS = (*_HALVES, torch.float32)


def is_layer(mode: TensorCores, op: str, a: Tensor, b: Tensor, *, is_convolution: bool = False) -> bool:
    """Whether matrix instructions multiply two operands, in their dtype or in the mode's format.

    Raises:
        FormatError: the operands have two dtypes.
    """
    if a.dtype != b.dtype and a.dtype in _FLOATS and b.dtype in _FLOATS:
        raise FormatError(
            f"{op}: operands of {a.dtype} and {b.dtype} on {mode.chip}; allowed: two of one dtype of "
            f"{', '.join(map(str, _FLOATS))}"
        )
    takes = mode.converts(a, b) or mode.takes(a, b, is_convolution=is_convolution)
    return a.dtype == b.dtype and takes


def _sums(
    mode: TensorCores, op: str, a: Tensor, b: Tensor, rank: int, out_dtype: torch.dtype | None = None
) -> Tensor | None:
    """The float32 sums of two matrices, or of batches; None: no matrix instruction multiplies them."""
    if not is_layer(mode, op, a, b):
        return None
    is_out = out_dtype in (None, a.dtype) or (out_dtype is torch.float32 and a.dtype in _HALVES)
    check(is_out and (_fits.matrices if rank == 2 else _fits.batches)(a, b))
    if rank == 2:
        return mode.layer_product(a, b, op=op)
    return mode.product(a, b, op=op) if mode.takes(a, b) else None


def _multiplied(op: str, rank: int) -> Handler:
    def handle(mode: TensorCores, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Any:
        sums = _sums(mode, op, a, b, rank, out_dtype)
        return NotImplemented if sums is None else sums.to(out_dtype or a.dtype)

    return handle


def _with_addend(sums: Tensor, c: Tensor, beta: float, alpha: float, *dtypes: torch.dtype | None) -> Tensor:
    """Float32 sums and what is added to them, of one of the dtypes, as a library's epilogue does it."""
    check(c.dtype in dtypes and _fits.expands(c, sums.shape))
    sums = sums if alpha == 1 else sums * alpha
    return sums if beta == 0 else sums + (c.float() if beta == 1 else c.float() * beta)


def _added(op: str, rank: int) -> Handler:
    def handle(
        mode: TensorCores,
        c: Tensor,
        a: Tensor,
        b: Tensor,
        out_dtype: torch.dtype | None = None,
        *,
        beta: float = 1,
        alpha: float = 1,
    ) -> Any:
        sums = _sums(mode, op, a, b, rank, out_dtype)
        if sums is None:
            return NotImplemented
        return _with_addend(sums, c, beta, alpha, a.dtype, out_dtype).to(out_dtype or a.dtype)

    return handle


def _activated(
    mode: TensorCores,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    use_gelu: bool = False,
) -> Any:
    sums = _sums(mode, "_addmm_activation", a, b, 2)
    if sums is None:
        return NotImplemented
    sums = _with_addend(sums, c, beta, alpha, a.dtype)
    if c.dim() != 1 or beta != 1:
        sums = sums.to(a.dtype).float()  # two kernels: the product is written first
    return (functional.gelu(sums, approximate="tanh") if use_gelu else sums.relu()).to(a.dtype)


def _summed_batches(
    mode: TensorCores, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    """Addbmm: a product after the other, each added to what the result's dtype keeps."""
    add = _added("addbmm", 2)
    if not is_layer(mode, "addbmm", a, b) or not a.numel() or not b.numel():
        return NotImplemented
    check(_fits.batches(a, b) and _fits.expands(c, (a.shape[1], b.shape[2])))
    for left, right in zip(a, b, strict=True):
        c = add(mode, c, left, right, beta=beta, alpha=alpha)
        if c is NotImplemented:
            return NotImplemented
        beta = 1
    return c


def _is_vector_product(mode: TensorCores, op: str, matrix: Tensor, vector: Tensor) -> bool:
    """Whether a library multiplies a matrix with a vector as a matrix of one column: of halves alone."""
    if not is_layer(mode, op, matrix, vector):
        return False
    if matrix.dtype not in _HALVES and not mode.converts(matrix, vector):
        return False
    check(_fits.vector(matrix, vector))
    return True


def _vector(mode: TensorCores, matrix: Tensor, vector: Tensor) -> Any:
    if not _is_vector_product(mode, "mv", matrix, vector):
        return NotImplemented
    return mode.layer_product(matrix, vector.unsqueeze(-1), op="mv").squeeze(-1).to(matrix.dtype)


def _added_vector(
    mode: TensorCores, c: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    if not _is_vector_product(mode, "addmv", matrix, vector):
        return NotImplemented
    sums = mode.layer_product(matrix, vector.unsqueeze(-1), op="addmv").squeeze(-1)
    return _with_addend(sums, c, beta, alpha, matrix.dtype).to(matrix.dtype)


def _are_groups(a: Tensor, b: Tensor, offs: Tensor | None) -> bool:
    if a.dim() not in (2, 3) or b.dim() not in (2, 3):
        return False
    if a.dim() == b.dim() == 3:
        return offs is None and _fits.batches(a, b)
    if offs is None or offs.dim() != 1 or offs.dtype is not torch.int32 or a.shape[-1] != b.shape[-2]:
        return False
    batches = [each.shape[0] for each in (a, b) if each.dim() == 3]
    return not batches or batches == [offs.shape[0]]


def _grouped(
    mode: TensorCores,
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Products of groups of rows, of columns or of K, which end at the offsets: each a product of its own."""
    if bias is not None or not is_layer(mode, "_grouped_mm", a, b) or not mode.takes(a, b):
        return NotImplemented
    check(_are_groups(a, b, offs) and out_dtype in (None, a.dtype))

    def product(left: Tensor, right: Tensor) -> Tensor:
        return mode.product(left, right, op="_grouped_mm", parts=1)

    dtype = out_dtype or a.dtype
    if a.dim() == 3 and b.dim() == 3:
        return product(a, b).to(dtype)
    assert offs is not None
    ends = [int(end) for end in offs.tolist()]
    size = a.shape[1] if a.dim() == b.dim() else a.shape[0] if a.dim() == 2 else b.shape[1]
    if ends != sorted(ends) or not all(0 <= end <= size for end in ends):
        raise OperandError(
            f"_grouped_mm: offs is {ends}; allowed: the ends of groups, each at or behind the last, within "
            f"{size}"
        )
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([product(a[:, i:j], b[i:j]) for i, j in spans]).to(dtype)
    result = a.new_zeros((a.shape[-2], b.shape[-1]), dtype=dtype)
    for group, (i, j) in enumerate(spans):
        if a.dim() == 2:
            result[i:j] = product(a[i:j], b[group]).to(dtype)
        else:
            result[:, i:j] = product(a[group], b[:, i:j]).to(dtype)
    return result


def _trilinear(
    mode: TensorCores,
    left: Tensor,
    right: Tensor,
    third: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Any:
    """Bilinear functions: PyTorch makes two batched products of them for each place along a dimension."""
    if not (is_layer(mode, "bilinear", left, right) and is_layer(mode, "bilinear", right, third)):
        return NotImplemented
    for dims, tensor in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in dims:
            left, right, third = (
                each.unsqueeze(dim) if place == tensor else each
                for place, each in enumerate((left, right, third))
            )
    rank = left.dim()
    letters = "abcdefgh"[:rank]
    # A dimension that the third lacks is summed in the first product, the others in the second.
    first = [dim for dim in sumdim if third.shape[dim] == 1 and dim in expand3]
    kept = "".join(letter for dim, letter in enumerate(letters) if dim not in first)
    last = "".join(letter for dim, letter in enumerate(letters) if dim not in sumdim)
    with mode.inside():
        half = torch.einsum(f"{letters},{letters}->{kept}", left, right)
        for dim in sorted(first):
            third = third.squeeze(dim) if third.shape[dim] == 1 else third
        return torch.einsum(f"{kept},{kept}->{last}", half, third)


def into(handler: Handler) -> Handler:
    """The form of an op with ``out=``, resized as PyTorch's are."""

    def handle(mode: TensorCores, *args: Any, out: Tensor, **kwargs: Any) -> Any:
        value = handler(mode, *args, **kwargs)
        if value is NotImplemented or value.dtype != out.dtype:
            return NotImplemented  # PyTorch refuses another dtype in its own words
        if out.shape != value.shape:
            out.resize_(value.shape)
        return out.copy_(value)

    return handle


def _in_place(handler: Handler) -> Handler:
    def handle(mode: TensorCores, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        value = handler(mode, self, *args, **kwargs)
        if value is NotImplemented or value.dtype != self.dtype or value.shape != self.shape:
            return NotImplemented
        return self.copy_(value)

    return handle


def _forms(name: str, handler: Handler) -> dict[Any, Handler]:
    """All overloads of an op that PyTorch has."""
    found: dict[Any, Handler] = {}
    packet = getattr(aten, name)
    for overload in packet.overloads():
        is_out = overload in ("out", "dtype_out")
        if is_out or overload in ("default", "dtype"):
            found[getattr(packet, overload)] = into(handler) if is_out else handler
    if hasattr(aten, f"{name}_"):
        found[getattr(aten, f"{name}_").default] = _in_place(handler)
    return found


HANDLERS: dict[Any, Handler] = {}
for _name, _handler in (
    ("mm", _multiplied("mm", 2)),
    ("bmm", _multiplied("bmm", 3)),
    ("addmm", _added("addmm", 2)),
    ("baddbmm", _added("baddbmm", 3)),
    ("addbmm", _summed_batches),
    ("_addmm_activation", _activated),
    ("mv", _vector),
    ("addmv", _added_vector),
    ("_grouped_mm", _grouped),
    ("_trilinear", _trilinear),
):
    HANDLERS.update(_forms(_name, _handler))
