"""Running a program with the sums of a GPU's matrix instructions: :func:`tensor_core`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypedDict, overload

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import Unpack

from torch_loom import _C
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores.block_formats import (
    Blocks,
    BlockScaled,
    blocks_of_operand,
    multiplied,
    to_blocks,
)
from torch_loom.numerics.tensor_cores.rules import (
    Rule,
    block_rules,
    instruction_depth,
    instruction_rule,
    usual_parts,
)

# The architecture of the chips whose instructions have a rule. Those of the rtx5090 are not known.
ARCHITECTURES = {
    "v100": "Volta",
    "v100_pcie": "Volta",
    "t4": "Turing",
    "a100": "Ampere",
    "a100_pcie40": "Ampere",
    "a10": "Ampere",
    "a40": "Ampere",
    "rtx3090": "Ampere",
    "l4": "Ada Lovelace",
    "l40s": "Ada Lovelace",
    "rtx4090": "Ada Lovelace",
    "h100": "Hopper",
    "h200": "Hopper",
    "b200": "Blackwell",
}
# The instruction that libraries take, and its shape up to K.
_INSTRUCTIONS = {
    "Volta": ("mma", "m8n8"),
    "Turing": ("mma", "m16n8"),
    "Ampere": ("mma", "m16n8"),
    "Ada Lovelace": ("mma", "m16n8"),
    "Hopper": ("wgmma", "m64n8"),
    "Blackwell": ("tcgen05mma", "m64n8"),
}
_NAMES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "tf32",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
}
_WIDE = (torch.float32, torch.float16, torch.bfloat16)
_HALVES = (torch.float16, torch.bfloat16)
# CUTLASS's default on Hopper: the sum moves to float32 after every four instructions.
_FLOAT8_PROMOTION = 128

aten = torch.ops.aten


def chip_rule(chip: str, a: torch.dtype, b: torch.dtype, op: str = "tensor_core") -> Rule:
    """Return the rule of the instruction that libraries use for products of two dtypes on a chip.

    Raises:
        FormatError: the chip has no rule, or none for these dtypes.
    """
    if chip not in ARCHITECTURES:
        raise FormatError(
            f"{op}: chip is {chip!r}, whose matrix instructions have no rule; allowed: "
            f"{', '.join(ARCHITECTURES)}"
        )
    if a not in _NAMES or b not in _NAMES:
        raise FormatError(f"{op}: no rule for {a} with {b} on {chip}; allowed: {', '.join(map(str, _NAMES))}")
    architecture = ARCHITECTURES[chip]
    instruction, shape = _INSTRUCTIONS[architecture]
    depth = instruction_depth(architecture, _NAMES[a])
    return instruction_rule(architecture, instruction, f"{shape}k{depth}.f32.{_NAMES[a]}.{_NAMES[b]}")


@functools.cache
def _block_rules(architecture: str) -> _C.BlockRules:
    """Each call of a wrapped module asks."""
    return _C.BlockRules(block_rules(architecture))


class TensorCores(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What :func:`tensor_core` returns: a context, in which products are those of matrix instructions."""

    def __init__(
        self,
        chip: str,
        *,
        tf32: bool | None = None,
        split_k: int | None = None,
        promotion: int | None = None,
        format: BlockScaled | None = None,
        exact: bool = True,
        partial: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if split_k is not None and (not isinstance(split_k, int) or split_k < 1):
            raise FormatError(f"tensor_core: split_k is {split_k!r}; allowed: None, or parts of K, from 1 on")
        chip_rule(chip, torch.float16, torch.float16)
        if format is not None and not isinstance(format, BlockScaled):
            raise FormatError(
                f"tensor_core: format is {format!r}; allowed: None, "
                f"{', '.join(f'BlockScaled.{each.name}' for each in BlockScaled)}"
            )
        if format is not None:
            format.rule(chip, ARCHITECTURES[chip])
        self.chip, self.tf32, self.split_k, self.promotion = chip, tf32, split_k, promotion
        self.format, self.exact, self.partial = format, exact, partial
        self._whole: list[ExitStack] = []

    def __enter__(self) -> TensorCores:
        # Fused attention is taken apart into its products, and so are layers of transformers.
        whole = ExitStack()
        whole.enter_context(sdpa_kernel(SDPBackend.MATH))
        has_fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        whole.callback(torch.backends.mha.set_fastpath_enabled, has_fast_path)
        # Kernels of Triton multiply blocks.
        before = _C.set_block_rules(_block_rules(ARCHITECTURES[self.chip]))
        whole.callback(_C.set_block_rules, before)
        self._whole.append(whole)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._whole.pop().close()

    def converts(self, *operands: Tensor) -> bool:
        """Whether a layer's operands of these dtypes are converted to the format."""
        return self.format is not None and all(each.dtype in _WIDE for each in operands)

    def layer_product(self, a: Tensor, b: Tensor, *, is_convolution: bool = False) -> Tensor:
        """The float32 sums of a layer's [M, K] and [K, N]: in the format, if there is one."""
        is_left = self.partial and self.format is not None and a.shape[-1] % self.format.block
        if self.format is not None and self.converts(a, b) and not is_left:
            return self.blocks_product(*(to_blocks("tensor_core", each, self.format) for each in (a, b.t())))
        takes = self.takes(a, b, is_convolution=is_convolution)
        return self.product(a, b) if takes else a.float() @ b.float()

    def blocks_product(self, a: Blocks, b: Blocks) -> Tensor:
        """The float32 sums of [M, K] and [N, K] in a format."""
        if self.exact:
            return multiplied(a, b, a.format.rule(self.chip, ARCHITECTURES[self.chip]))
        return a.values() @ b.values().t()

    def takes(self, *operands: Tensor, is_convolution: bool = False) -> bool:
        """Whether the chip multiplies operands with matrix instructions: float32 only as TF32."""
        return all(
            each.dtype in _NAMES and (each.dtype is not torch.float32 or self._uses_tf32(is_convolution))
            for each in operands
        )

    def _uses_tf32(self, is_convolution: bool) -> bool:
        if self.tf32 is not None:
            return self.tf32
        library: Any = torch.backends.cudnn.conv if is_convolution else torch.backends.cuda.matmul  # type: ignore[attr-defined]
        own = library.fp32_precision
        allowed = torch.backends.fp32_precision if own == "none" else own  # type: ignore[attr-defined]
        return allowed == "tf32" and ARCHITECTURES[self.chip] not in ("Volta", "Turing")

    def product(self, a: Tensor, b: Tensor, *, fast_sums: bool = False) -> Tensor:
        """The float32 sums of [M, K] and [K, N], or of batches of them."""
        rule = chip_rule(self.chip, a.dtype, b.dtype)
        promotion = self.promotion
        if promotion is None:
            is_hopper8 = ARCHITECTURES[self.chip] == "Hopper" and rule.kept_bits == 13
            promotion = _FLOAT8_PROMOTION if is_hopper8 and not fast_sums else 0
        arguments = rule.arguments[:6]
        left, right = (_to_tf32(each) if each.dtype is torch.float32 else each.float() for each in (a, b))
        parts = self.split_k
        if parts is None:
            is_chosen = ARCHITECTURES[self.chip] == "Hopper" and a.dtype in _HALVES and a.dim() == 2
            parts = usual_parts(a.shape[0], b.shape[1], a.shape[1]) if is_chosen else 1
        sums: Tensor = ops.tensor_core_matmul(left, right, *arguments, rule.depth, promotion, parts)
        return sums

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            value = handler(self, *args, **kwargs)
            if value is not NotImplemented:
                return value
        return func(*args, **kwargs)


def _to_tf32(numbers: Tensor) -> Tensor:
    """Round float32 to TF32's 10 bits, halves to even, as libraries do before instructions cut the rest."""
    bits = numbers.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(numbers.isfinite(), rounded.view(torch.float32), numbers)


def _is_layer(mode: TensorCores, a: Tensor, b: Tensor, *, is_convolution: bool = False) -> bool:
    return a.dtype == b.dtype and (mode.converts(a, b) or mode.takes(a, b, is_convolution=is_convolution))


def _sums(mode: TensorCores, a: Tensor, b: Tensor) -> Tensor | None:
    """The float32 sums of two matrices, or of batches; None: no matrix instruction multiplies them."""
    if a.dim() == 2:
        return mode.layer_product(a, b) if _is_layer(mode, a, b) else None
    return mode.product(a, b) if mode.takes(a, b) and a.dtype == b.dtype else None


def _multiplied(mode: TensorCores, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Any:
    sums = _sums(mode, a, b)
    return NotImplemented if sums is None else sums.to(out_dtype or a.dtype)


def _added(
    mode: TensorCores,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Any:
    sums = _sums(mode, a, b)
    if sums is None:
        return NotImplemented
    sums = sums if alpha == 1 else sums * alpha
    if beta != 0:
        sums = sums + (c.float() if beta == 1 else c.float() * beta)
    return sums.to(out_dtype or a.dtype)


def _scaled_mm(
    mode: TensorCores,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    if scale_a.dtype is torch.float32 and scale_b.dtype is torch.float32:
        sums = mode.product(a, b, fast_sums=use_fast_accum) * (scale_a * scale_b)
    else:
        sums = mode.blocks_product(blocks_of_operand(a, scale_a), blocks_of_operand(b.t(), scale_b))
    if bias is not None:
        sums = sums + bias.float()
    return sums.to(a.dtype if out_dtype is None else out_dtype)


def _windows(x: Tensor, kernel: list[int], stride: list[int], dilation: list[int]) -> Tensor:
    """[N, L, kH · kW · C] windows of [N, C, H, W], channels innermost as implicit GEMM has them."""
    count, channels = x.shape[:2]
    columns = functional.unfold(x.float(), kernel, tuple(dilation), 0, tuple(stride))  # type: ignore[arg-type]
    return columns.view(count, channels, -1, columns.shape[-1]).permute(0, 3, 2, 1).flatten(2)


def _convolved(
    mode: TensorCores, x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int
) -> Tensor:
    """Float32 sums [N, O, H', W'] of a padded input."""
    kernel = list(weight.shape[2:])
    sizes = [
        (size - d * (k - 1) - 1) // s + 1
        for size, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True)
    ]
    parts = []
    for inputs, filters in zip(x.chunk(groups, 1), weight.chunk(groups), strict=True):
        windows = _windows(inputs, kernel, stride, dilation).to(x.dtype).flatten(0, 1)
        flat = filters.permute(2, 3, 1, 0).reshape(-1, filters.shape[0])
        parts.append(
            mode.layer_product(windows, flat, is_convolution=True)
            .view(x.shape[0], *sizes, -1)
            .permute(0, 3, 1, 2)
        )
    return torch.cat(parts, 1)


def _is_plain(mode: TensorCores, x: Tensor, weight: Tensor, transposed: bool) -> bool:
    return x.dim() == 4 and not transposed and _is_layer(mode, x, weight, is_convolution=True)


def _convolution(
    mode: TensorCores,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    if not _is_plain(mode, x, weight, transposed):
        return NotImplemented
    padded = functional.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    sums = _convolved(mode, padded, weight, stride, dilation, groups)
    if bias is not None:
        sums = sums + bias.float().view(-1, 1, 1)
    return sums.to(x.dtype).contiguous()


def _convolution_backward(
    mode: TensorCores,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    if not _is_plain(mode, x, weight, transposed):
        return NotImplemented
    grad_x = grad_weight = grad_bias = None
    kernel = list(weight.shape[2:])
    if wanted[0]:
        # A convolution of the gradient, spread out by the stride, with the filters turned round.
        rest = [
            (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) % stride[i]
            for i in range(2)
        ]
        spread = grad.new_zeros(*grad.shape[:2], *((grad.shape[2 + i] - 1) * stride[i] + 1 for i in range(2)))
        spread[:, :, :: stride[0], :: stride[1]] = grad
        edges = [dilation[i] * (kernel[i] - 1) - padding[i] for i in range(2)]
        spread = functional.pad(spread, [edges[1], edges[1] + rest[1], edges[0], edges[0] + rest[0]])
        turned = weight.flip(2, 3).reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)
        grad_x = _convolved(mode, spread, turned, [1, 1], dilation, groups).to(x.dtype).contiguous()
    if wanted[1]:
        padded = functional.pad(x, [padding[1], padding[1], padding[0], padding[0]])
        parts = []
        for inputs, grads in zip(padded.chunk(groups, 1), grad.chunk(groups, 1), strict=True):
            windows = _windows(inputs, kernel, stride, dilation).to(x.dtype).flatten(0, 1)
            places = grads.shape[2] * grads.shape[3]
            rows = grads.permute(1, 0, 2, 3).reshape(grads.shape[1], -1)
            sums = mode.layer_product(rows, windows[: x.shape[0] * places], is_convolution=True)
            parts.append(sums.view(-1, *kernel, inputs.shape[1]).permute(0, 3, 1, 2))
        grad_weight = torch.cat(parts).to(weight.dtype).contiguous()
    if wanted[2]:
        grad_bias = grad.sum((0, 2, 3))
    return grad_x, grad_weight, grad_bias


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.mm.dtype, aten.bmm.dtype), _multiplied),
    **dict.fromkeys((aten.addmm.default, aten.baddbmm.default, aten.addmm.dtype, aten.baddbmm.dtype), _added),
    aten._scaled_mm.default: _scaled_mm,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}


class Options(TypedDict, total=False):
    """Those of :func:`tensor_core`, with the defaults of :class:`TensorCores`."""

    tf32: bool | None
    split_k: int | None
    promotion: int | None
    format: BlockScaled | None
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
        format: what the operands of layers (products of two matrices, and convolutions) are converted to,
            in blocks along K: MXFP8, MXFP8_E5M2, MXFP4 or NVFP4, on b200. Batched products, as those of
            attention, stay in their dtypes.
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
