"""Formats whose elements share a scale along K: MXFP8, MXFP4 and NVFP4.

Sources: the OCP Microscaling Formats specification 1.0 (elements, scales, conversion); the documentation of
cuBLAS 12.9 (NVFP4: blocks of 16 with scales of e4m3 and a float32 scale for the tensor; the order of scales).
Not run on a card.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_loom.errors import FormatError
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores.rules import Rule, instruction_rule

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_NAN_SCALE = 255
_ONE = {"ue8m0": 127, "ue4m3": 0x38}


class BlockScaled(enum.Enum):
    """How an element is stored, and how many share a scale."""

    MXFP8 = ("e4m3", "ue8m0", 32)
    MXFP8_E5M2 = ("e5m2", "ue8m0", 32)
    MXFP4 = ("e2m1", "ue8m0", 32)
    NVFP4 = ("e2m1", "ue4m3", 16)

    @property
    def element(self) -> str:
        """``"e4m3"``, ``"e5m2"`` or ``"e2m1"``."""
        return self.value[0]

    @property
    def scale(self) -> str:
        """``"ue8m0"``, a power of two, or ``"ue4m3"``."""
        return self.value[1]

    @property
    def block(self) -> int:
        """How many neighbours along K share a scale."""
        return self.value[2]

    @property
    def bits(self) -> float:
        """Bits of an element, its share of a scale included."""
        return (4 if self.element == "e2m1" else 8) + 8 / self.block

    @property
    def largest(self) -> float:
        """The largest element."""
        return {"e4m3": 448.0, "e5m2": 57344.0, "e2m1": 6.0}[self.element]

    @property
    def limit(self) -> float:
        """Between the largest element and the next that there would be: what lies beyond is saturated."""
        return {"e4m3": 464.0, "e5m2": 61440.0, "e2m1": 7.0}[self.element]

    def to_json(self) -> str:
        """Return the member's name."""
        return self.name

    def rule(self, chip: str, architecture: str) -> Rule:
        """Return the rule of a chip's instruction for two operands of this format.

        Raises:
            FormatError: the chip has none.
        """
        if architecture != "Blackwell":
            raise FormatError(
                f"tensor_core: {self.name} on {chip} ({architecture}), whose instructions have no block "
                "scales; allowed: b200"
            )
        depth = 64 if self.element == "e2m1" else 32
        name = f"m64n8k{depth}.block{self.block}.f32.{self.element}.{self.element}.{self.scale}"
        return instruction_rule(architecture, "tcgen05mma_block_scale", name)


class Plain(enum.Enum):
    """A dtype as the format of layers' operands: halves are rounded, FP8 has a scale of the tensor."""

    float16 = torch.float16
    bfloat16 = torch.bfloat16
    float8_e4m3fn = torch.float8_e4m3fn
    float8_e5m2 = torch.float8_e5m2

    @property
    def dtype(self) -> torch.dtype:
        """PyTorch's dtype."""
        dtype: torch.dtype = self.value
        return dtype

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * self.dtype.itemsize

    @property
    def has_scale(self) -> bool:
        """Whether a tensor has a scale, which makes its largest magnitude the format's."""
        return self.bits == 8

    def to_json(self) -> str:
        """Return the member's name."""
        return self.name

    def converted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a tensor in the dtype, and the scale that it was divided by."""
        scale = torch.ones((), device=x.device)
        if self.has_scale and x.numel():
            wanted = x.float().abs().amax() / torch.finfo(self.dtype).max
            scale = torch.where((wanted > 0) & wanted.isfinite(), wanted, scale)
        return (x.float() / scale).to(self.dtype), scale

    def values(self, x: Tensor) -> Tensor:
        """Return a tensor's values in the format, float32."""
        numbers, scale = self.converted(x)
        return numbers.float() * scale


@dataclass(frozen=True)
class Blocks:
    """A tensor in a format, its blocks along the last dimension.

    Attributes:
        elements: their values, float32, as of the tensor's shape.
        scales: codes of the scales, uint8; the last dimension has a code for each block.
        tensor_scale: what all is multiplied with besides, a float32 scalar; 1 but for NVFP4.
    """

    format: BlockScaled
    elements: Tensor
    scales: Tensor
    tensor_scale: Tensor

    def values(self) -> Tensor:
        """Return what the tensor is in the format, float32."""
        scales = scale_values(self.scales, self.format.scale).repeat_interleave(self.format.block, -1)
        return self.elements * scales * self.tensor_scale


def scale_values(codes: Tensor, scale: str) -> Tensor:
    """Return the scales, float32, of their codes, uint8."""
    if scale == "ue8m0":
        return codes.view(torch.float8_e8m0fnu).float()
    return (codes & 0x7F).view(torch.float8_e4m3fn).float()


def _rounded(x: Tensor, element: str) -> Tensor:
    """To the nearest element, ties to even; x lies in the element's range, or is NaN."""
    if element != "e2m1":
        return x.to(_DTYPES[element]).float()
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.copysign((size / step).round() * step, x)


def to_blocks(op: str, x: Tensor, fmt: BlockScaled) -> Blocks:
    """Convert a tensor whose last dimension is K.

    The shared exponent of an MX format is that of the block's largest magnitude, less that of the largest
    element (OCP MX 1.0, 6.3); elements are rounded to nearest, ties to even, and limited to the largest. A
    block with an infinity or a NaN is NaN.

    Raises:
        FormatError: K is no multiple of the block.
    """
    if x.shape[-1] % fmt.block:
        raise FormatError(
            f"{op}: K is {x.shape[-1]}, and {fmt.block} neighbours of {fmt.name} share a scale; allowed: "
            f"multiples of {fmt.block}"
        )
    blocks = x.float().reshape(*x.shape[:-1], x.shape[-1] // fmt.block, fmt.block)
    largest = blocks.abs().amax(-1) if x.numel() else blocks.new_zeros(blocks.shape[:-1])
    tensor_scale = torch.ones((), device=x.device)
    if fmt.scale == "ue8m0":
        exponents = torch.frexp(largest).exponent - torch.frexp(torch.tensor(fmt.largest)).exponent
        codes = (exponents + 127).clamp(0, 254).masked_fill(largest == 0, 0)
        codes = codes.masked_fill(~largest.isfinite(), _NAN_SCALE).to(torch.uint8)
    else:
        if x.numel():
            whole = largest.amax() / (448.0 * fmt.largest)
            tensor_scale = torch.where((whole > 0) & whole.isfinite(), whole, tensor_scale)
        wanted = (largest / fmt.largest / tensor_scale).clamp(max=448.0)  # keeps NaN
        wanted = wanted.masked_fill(~largest.isfinite(), torch.nan)
        codes = wanted.to(torch.float8_e4m3fn).view(torch.uint8) & 0x7F
    scales = scale_values(codes, fmt.scale) * tensor_scale
    # Doubles hold each quotient by a power of two. A block whose scale is zero has zeros.
    quotients = blocks.double() / scales.double().masked_fill(scales == 0, torch.inf).unsqueeze(-1)
    limited = quotients.clamp(-fmt.largest, fmt.largest).float()
    return Blocks(fmt, _rounded(limited, fmt.element).flatten(-2), codes, tensor_scale)


def element_codes(elements: Tensor, element: str) -> Tensor:
    """Return the codes of elements, int32."""
    if element != "e2m1":
        return elements.to(_DTYPES[element]).view(torch.uint8).to(torch.int32)
    table = torch.tensor(_E2M1, device=elements.device)
    return torch.searchsorted(table, elements.abs().contiguous()).to(torch.int32) | (
        elements.signbit().to(torch.int32) << 3
    )


def multiplied(a: Blocks, b: Blocks, rule: Rule, op: str = "tensor_core") -> Tensor:
    """Return the float32 sums [M, N] of [M, K] and [N, K], as a chip's instructions add them.

    K is filled up with zeros to whole instructions.

    Raises:
        FormatError: a sum of FP4 products is infinite before the last instruction, which has no rule for it.
    """
    depth, fmt = a.elements.shape[-1], a.format
    missing = -depth % rule.depth
    codes = [
        torch.nn.functional.pad(element_codes(each.elements, fmt.element), (0, missing)) for each in (a, b)
    ]
    scales = [
        torch.nn.functional.pad(each.scales, (0, missing // fmt.block), value=_ONE[fmt.scale])
        for each in (a, b)
    ]
    start = torch.zeros((codes[0].shape[0], codes[1].shape[0]), dtype=torch.int32, device=a.elements.device)
    if depth == 0:
        return start.view(torch.float32)

    def summed(length: int) -> Tensor:
        sums: Tensor = ops.tensor_core_dot(
            codes[0][:, :length],
            codes[1][:, :length].t(),
            start,
            *rule.arguments,
            scales[0][:, : length // fmt.block],
            scales[1][:, : length // fmt.block].t(),
        )
        return sums

    whole = codes[0].shape[-1]
    sums = summed(whole)
    if rule.exact_group > 1 and whole > rule.depth and type(sums) is Tensor and not sums.is_meta:
        before = whole - rule.depth
        is_finite = sums.view(torch.float32).isfinite().all()
        if not is_finite and bool(summed(before).view(torch.float32).isinf().any()):
            raise FormatError(
                f"{op}: a sum of {fmt.name} products is infinite after {before} of {whole} products, and the "
                "instruction has no rule for what is then added; allowed: sums within float32"
            )
    return sums.view(torch.float32) * (a.tensor_scale * b.tensor_scale)


def unswizzled(scales: Tensor, rows: int, columns: int) -> Tensor:
    """Return the codes [rows, columns], uint8, of scales in cuBLAS's order: tiles of 128 x 4."""
    row_tiles, column_tiles = -(-rows // 128), -(-columns // 4)
    codes = scales.view(torch.uint8).flatten()
    if codes.numel() != row_tiles * column_tiles * 512:
        raise FormatError(
            f"_scaled_mm: {codes.numel()} scales for {rows} rows of {columns} blocks; allowed: "
            f"{row_tiles * column_tiles * 512}, in tiles of 128 rows and 4 blocks"
        )
    tiles = codes.view(row_tiles, column_tiles, 32, 4, 4).transpose(2, 3)
    rows_first = tiles.reshape(row_tiles, column_tiles, 128, 4).transpose(1, 2)
    return rows_first.reshape(row_tiles * 128, column_tiles * 4)[:rows, :columns]


_FORMATS_OF_OPERANDS = {
    (torch.float8_e4m3fn, torch.float8_e8m0fnu): BlockScaled.MXFP8,
    (torch.float8_e5m2, torch.float8_e8m0fnu): BlockScaled.MXFP8_E5M2,
    (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu): BlockScaled.MXFP4,
    (torch.float4_e2m1fn_x2, torch.float8_e4m3fn): BlockScaled.NVFP4,
}


def blocks_of_operand(operand: Tensor, scales: Tensor) -> Blocks:
    """Return an operand [M, K] of ``_scaled_mm``, with its scales in cuBLAS's order.

    Raises:
        FormatError: there is no format of these dtypes, or the scales are not as many as it has blocks.
    """
    fmt = _FORMATS_OF_OPERANDS.get((operand.dtype, scales.dtype))
    if fmt is None:
        raise FormatError(
            f"_scaled_mm: {operand.dtype} with scales of {scales.dtype}; allowed: float32 scales, of tensors "
            f"or rows, and {', '.join(f'{a} with {b}' for a, b in _FORMATS_OF_OPERANDS)}"
        )
    elements = _elements(operand)
    rows, depth = elements.shape
    codes = unswizzled(scales, rows, -(-depth // fmt.block))
    return Blocks(fmt, elements, codes, torch.ones((), device=operand.device))


def _elements(operand: Tensor) -> Tensor:
    if operand.dtype is not torch.float4_e2m1fn_x2:
        return operand.float()
    codes = operand.contiguous().view(torch.uint8).to(torch.int64)
    table = torch.tensor([*_E2M1, *(-each for each in _E2M1)], device=operand.device)
    return table[torch.stack((codes & 15, codes >> 4), -1)].flatten(-2)  # the first has the low bits


@torch.library.custom_op("loom_numerics::block_scaled", mutates_args=())
def _block_scaled(x: Tensor, name: str) -> Tensor:
    return to_blocks("quantize", x, BlockScaled[name]).values().to(x.dtype)


@_block_scaled.register_fake
def _(x: Tensor, name: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _passed_on(context: object, gradient: Tensor) -> tuple[Tensor, None]:
    return gradient, None


_block_scaled.register_autograd(_passed_on)


def quantized(x: Tensor, fmt: BlockScaled) -> Tensor:
    """Return a tensor's values in a format, blocks along its last dimension; gradients pass as they are.

    Raises:
        FormatError: its last dimension is no multiple of the block.
    """
    found: Tensor = _block_scaled(x, fmt.name)
    return found
