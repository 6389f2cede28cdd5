"""Running a program with the sums of a GPU's matrix instructions: :func:`tensor_core`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, TypedDict, overload

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import Unpack

from torch_loom import _C
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import _fits
from torch_loom.numerics._checkpoints import innermost, recompute_under
from torch_loom.numerics._checks import check_flag
from torch_loom.numerics._ops import ops
from torch_loom.numerics._scripts import check_scripts
from torch_loom.numerics.tensor_cores import attention, convolutions, matmuls, scaled
from torch_loom.numerics.tensor_cores.block_formats import Blocks, BlockScaled, Plain, multiplied, to_blocks
from torch_loom.numerics.tensor_cores.chips import ARCHITECTURES, NAMES, block_rules_of, chip_rule
from torch_loom.numerics.tensor_cores.fused_layers import WITHOUT_FUSED_LAYERS
from torch_loom.numerics.tensor_cores.rules import usual_parts

_WIDE = (torch.float32, torch.float16, torch.bfloat16)
_HALVES = (torch.float16, torch.bfloat16)
# CUTLASS's default on Hopper: the sum moves to float32 after every four instructions.
_FLOAT8_PROMOTION = 128
_FLOAT8_DEPTH = 32
_LARGEST_COUNT = 2**31 - 1
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

HANDLERS = {**matmuls.HANDLERS, **scaled.HANDLERS, **convolutions.HANDLERS}


class TensorCores(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What :func:`tensor_core` returns: a context, in which products are those of matrix instructions."""

    has_tensor_cores = True  # by which attention finds the mode

    def __init__(
        self,
        chip: str,
        *,
        tf32: bool | None = None,
        split_k: int | None = None,
        promotion: int | None = None,
        format: BlockScaled | torch.dtype | None = None,
        exact: bool = True,
        partial: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        chip_rule(chip, torch.float16, torch.float16)
        if tf32 is not None:
            check_flag("tensor_core", "tf32", tf32)
        check_flag("tensor_core", "exact", exact)
        check_flag("tensor_core", "partial", partial)
        if split_k is not None and (type(split_k) is not int or not 1 <= split_k <= _LARGEST_COUNT):
            raise FormatError(
                f"tensor_core: split_k is {split_k!r}; allowed: None, or parts of K, from 1 to "
                f"{_LARGEST_COUNT}"
            )
        is_count = promotion is None or (type(promotion) is int and 0 <= promotion <= _LARGEST_COUNT)
        if not is_count or (promotion is not None and promotion % _FLOAT8_DEPTH):
            raise FormatError(
                f"tensor_core: promotion is {promotion!r} on {chip}; allowed: None, 0 (never), or multiples "
                f"of {_FLOAT8_DEPTH}, the products of an FP8 instruction, to {_LARGEST_COUNT}"
            )
        chosen: BlockScaled | Plain | None = None
        if isinstance(format, torch.dtype) and format in {each.dtype for each in Plain}:
            chip_rule(chip, format, format)
            chosen = Plain(format)
        elif isinstance(format, BlockScaled):
            format.rule(chip, ARCHITECTURES[chip])
            chosen = format
        elif format is not None:
            raise FormatError(
                f"tensor_core: format is {format!r}; allowed: None, "
                f"{', '.join(f'BlockScaled.{each.name}' for each in BlockScaled)}, "
                f"{', '.join(str(each.dtype) for each in Plain)}"
            )
        self.chip, self.tf32, self.split_k, self.promotion = chip, tf32, split_k, promotion
        self.format = chosen
        self.exact, self.partial = exact, partial
        self.depths: set[int] = set()  # K of the products whose operands were converted to blocks
        self._given = Options(
            tf32=tf32, split_k=split_k, promotion=promotion, format=format, exact=exact, partial=partial
        )
        self._whole: list[ExitStack] = []
        recompute_under(TensorCores)
        check_scripts()

    def __enter__(self) -> TensorCores:
        # Layers of transformers are taken apart into their products, and attention that has no rule.
        whole = ExitStack()
        whole.enter_context(WITHOUT_FUSED_LAYERS)
        whole.enter_context(attention.AttentionMode(self))
        # Kernels of Triton multiply blocks.
        before = _C.set_block_rules(block_rules_of(ARCHITECTURES[self.chip]))
        whole.callback(_C.set_block_rules, before)
        self._whole.append(whole)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._whole.pop().close()

    def recomputed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that has this mode's products wherever it runs."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            # In backward(), which the function mode was handed, it does not run. Elsewhere it is a mode of
            # its own: the backward may run in another thread.
            is_running = innermost(TensorCores) is self
            with attention.AttentionMode(self) if is_running else TensorCores(self.chip, **self._given):
                return function(*args, **kwargs)

        return run

    def converts(self, *operands: Tensor) -> bool:
        """Whether a layer's operands of these dtypes are converted to the format."""
        return self.format is not None and all(each.dtype in _WIDE for each in operands)

    def layer_product(
        self, a: Tensor, b: Tensor, *, is_convolution: bool = False, op: str = "tensor_core"
    ) -> Tensor:
        """The float32 sums of a layer's [M, K] and [K, N]: in the format, if there is one."""
        if isinstance(self.format, Plain) and self.converts(a, b):
            (left, left_scale), (right, right_scale) = (self.format.converted(each) for each in (a, b))
            sums = self.product(left, right, op=op) if self.exact else left.float() @ right.float()
            return sums * (left_scale * right_scale) if self.format.has_scale else sums
        blocks = self.format if isinstance(self.format, BlockScaled) and self.converts(a, b) else None
        if blocks is not None and not (self.partial and a.shape[-1] % blocks.block):
            if type(a.shape[-1]) is int:  # none that is traced
                self.depths.add(a.shape[-1])
            return self.blocks_product(*(to_blocks(op, each, blocks) for each in (a, b.t())), op=op)
        takes = self.takes(a, b, is_convolution=is_convolution)
        return self.product(a, b, op=op) if takes else a.float() @ b.float()

    def blocks_product(self, a: Blocks, b: Blocks, *, op: str = "tensor_core") -> Tensor:
        """The float32 sums of [M, K] and [N, K] in a format."""
        if self.exact:
            return multiplied(a, b, a.format.rule(self.chip, ARCHITECTURES[self.chip]), op)
        return a.values() @ b.values().t()

    def takes(self, *operands: Tensor, is_convolution: bool = False) -> bool:
        """Whether the chip multiplies operands with matrix instructions: float32 only as TF32."""
        return all(
            each.dtype in NAMES and (each.dtype is not torch.float32 or self._uses_tf32(is_convolution))
            for each in operands
        )

    def _uses_tf32(self, is_convolution: bool) -> bool:
        if self.tf32 is not None:
            return self.tf32
        library: Any = torch.backends.cudnn.conv if is_convolution else torch.backends.cuda.matmul  # type: ignore[attr-defined]
        own = library.fp32_precision
        allowed = torch.backends.fp32_precision if own == "none" else own  # type: ignore[attr-defined]
        return allowed == "tf32" and ARCHITECTURES[self.chip] not in ("Volta", "Turing")

    def product(
        self,
        a: Tensor,
        b: Tensor,
        *,
        fast_sums: bool = False,
        parts: int | None = None,
        op: str = "tensor_core",
    ) -> Tensor:
        """The float32 sums of [M, K] and [K, N], or of batches of them.

        Args:
            fast_sums: FP8 sums never move to float32.
            parts: of K that are summed apart, where the mode's user says nothing; None: as usual.
            op: for errors.
        """
        rule = chip_rule(self.chip, a.dtype, b.dtype, op)
        promotion = self.promotion if a.dtype in _FLOAT8 else 0
        if promotion is None:
            is_hopper8 = ARCHITECTURES[self.chip] == "Hopper" and rule.kept_bits == 13
            promotion = _FLOAT8_PROMOTION if is_hopper8 and not fast_sums else 0
        arguments = rule.arguments[:6]
        left, right = (_to_tf32(each) if each.dtype is torch.float32 else each.float() for each in (a, b))
        parts = self.split_k or parts
        if parts is None:
            is_chosen = ARCHITECTURES[self.chip] == "Hopper" and a.dtype in _HALVES and a.dim() == 2
            parts = usual_parts(a.shape[0], b.shape[1], a.shape[1]) if is_chosen else 1
        sums: Tensor = ops.tensor_core_matmul(left, right, *arguments, rule.depth, promotion, parts)
        return sums

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _are_strided(args, kwargs):
            return func(*args, **kwargs)  # sparse and nested: kernels of their own
        handler = HANDLERS.get(func)
        if handler is not None:
            try:
                value = handler(self, *args, **kwargs)
            except matmuls.UnfitError:
                value = None
            if value is None:
                _fits.refuse(func, args, kwargs)
            if value is not NotImplemented:
                return value
        elif is_composite(func):
            # In inference mode, or called by a handler: autograd has not taken it apart.
            with self.inside():
                value = func.decompose(*args, **kwargs)
            if value is not NotImplemented:
                return value
        return func(*args, **kwargs)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let what a handler calls be seen by the mode, too."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]


def is_composite(func: Any) -> bool:
    """Whether to take an op apart; tracing does so by itself."""
    is_traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return not is_traced and _has_parts(func)


@functools.cache
def _has_parts(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return isinstance(func, OpOverload) and func.namespace == "aten" and func.has_kernel_for_dispatch_key(key)


def _are_strided(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
    return all(each.layout is torch.strided and not each.is_nested for each in tensors)


def _to_tf32(numbers: Tensor) -> Tensor:
    """Round float32 to TF32's 10 bits, halves to even, as libraries do before instructions cut the rest."""
    bits = numbers.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(numbers.isfinite(), rounded.view(torch.float32), numbers)


class Options(TypedDict, total=False):
    """Those of :func:`tensor_core`, with the defaults of :class:`TensorCores`."""

    tf32: bool | None
    split_k: int | None
    promotion: int | None
    format: BlockScaled | torch.dtype | None
    exact: bool
    partial: bool


class Multiplied(nn.Module):
    """A module whose calls run under :func:`tensor_core`."""

    def __init__(self, module: nn.Module, chip: str, options: Options) -> None:
        super().__init__()
        self.module = module
        self._chip, self._options = chip, options

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with TensorCores(self._chip, **self._options):
            return self.module(*args, **kwargs)


@overload
def tensor_core(model: nn.Module, *, chip: str = ..., **options: Unpack[Options]) -> Multiplied: ...


@overload
def tensor_core(model: None = ..., *, chip: str = ..., **options: Unpack[Options]) -> TensorCores: ...


def tensor_core(
    model: nn.Module | None = None, *, chip: str = "h100", **options: Unpack[Options]
) -> Multiplied | TensorCores:
    """Compute products as the matrix instructions of a GPU do, to the bit: a wrapped module, or a context.

    Matrix products, convolutions of two dimensions, attention (taken apart) and ``_scaled_mm``, forward, and
    backward where the backward runs in a context. Everything else is computed as elsewhere, also products of
    dtypes that the chip multiplies without matrix instructions (float32 without `tf32`). Sums are float32;
    alpha, beta and bias come after them.

    Args:
        model: a module to wrap; None: a context.
        chip: a100, a10, a40, rtx3090, l4, l40s, rtx4090, h100, h200, b200, t4, v100.
        tf32: whether float32 products use TF32; None: where ``torch.backends.cuda.matmul.allow_tf32`` lets
            cuBLAS and ``torch.backends.cudnn.allow_tf32`` (True by default) cuDNN, on chips that have it.
        split_k: parts of K that are summed apart and added in float32. None: as cuBLAS usually chooses for
            half precision on Hopper, where K is large and the result is small; elsewhere one.
        promotion: after how many products the sum of FP8 operands moves to float32. Default: 128 on Hopper,
            as in CUTLASS, unless ``use_fast_accum`` is asked for; 0 means never.
        format: what the operands of layers (products of two matrices, and convolutions) are converted to:
            in blocks along K, MXFP8, MXFP8_E5M2, MXFP4 or NVFP4, on b200; or a dtype, torch.float16,
            torch.bfloat16, or torch.float8_e4m3fn and torch.float8_e5m2 with a scale of the tensor. Batched
            products, as those of attention, stay in their dtypes.
        exact: whether products in `format` are added as the instructions do; False: in float32, which is
            faster and differs in the last bits.
        partial: whether layers whose K is no multiple of the format's block stay as they are; False: they
            are errors.

    Raises:
        FormatError: the chip has no rule, or none for the operands' dtypes or `format`; K is no multiple
            of the format's block.
        OperandError: `model` is no module.

    Example:
        >>> import torch
        >>> from torch_loom.numerics import tensor_core
        >>> a, b = torch.ones(1, 16, dtype=torch.float16), torch.full((16, 1), 0.1, dtype=torch.float16)
        >>> with tensor_core(chip="h100"):
        ...     (a @ b).item()
        1.599609375
    """
    cores = TensorCores(chip, **options)
    if model is None:
        return cores
    if not isinstance(model, nn.Module):
        raise OperandError(
            f"tensor_core: model is a {type(model).__name__}; allowed: a torch.nn.Module, None"
        )
    return Multiplied(model, chip, options)
