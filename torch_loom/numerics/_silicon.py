"""What the ops take for converters' rules and for sums as a chip's matrix unit makes them."""

from __future__ import annotations

from torch_loom.errors import FormatError
from torch_loom.numerics._checks import check_flag
from torch_loom.numerics.formats import DataFormat, ExponentFamily

PYBUDA, HOST, PACKER, PACKER_PRECISE, UNPACKER = range(5)
RULES = {
    "pybuda": PYBUDA,
    "host": HOST,
    "packer": PACKER,
    "packer_precise": PACKER_PRECISE,
    "unpacker": UNPACKER,
}
_BLOCKS_B = (DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b)
_BLOCKS_A = (DataFormat.Bfp8, DataFormat.Bfp4, DataFormat.Bfp2)
_SINGLE = (DataFormat.Float32, DataFormat.Float16_b, DataFormat.Float16)
# The formats that each rule makes.
FORMATS = {
    PYBUDA: tuple(fmt for fmt in DataFormat if fmt is not DataFormat.Invalid),
    HOST: (*_SINGLE, *_BLOCKS_B, *_BLOCKS_A),
    PACKER: (*_SINGLE, *_BLOCKS_B),
    PACKER_PRECISE: (*_SINGLE, *_BLOCKS_B),
    UNPACKER: _SINGLE,
}
# Grayskull's arithmetic is not public; it is computed by Wormhole's rule.
CHIPS = {"wormhole_b0": 0, "blackhole": 2, "grayskull": 0}
_ON, _SHORT, _ADDS_IN_MEMORY = 1, 4, 8
_BLOCK_SHIFT = 8
_LARGEST_BLOCK = 2**31 - 1


def _names(formats: tuple[DataFormat, ...]) -> str:
    return ", ".join(fmt.name for fmt in formats)


def check_rule(op: str, rule: object, fmt: DataFormat) -> int:
    """Return the number of a converter that makes a format.

    Raises:
        FormatError: there is no such converter, or it has no rule for the format.
    """
    if not isinstance(rule, str) or rule not in RULES:
        raise FormatError(f"{op}: rule is {rule!r}; allowed: {', '.join(RULES)}")
    number = RULES[rule]
    if fmt not in FORMATS[number]:
        raise FormatError(f"{op}: {rule} has no rule for {fmt.name}; allowed: {_names(FORMATS[number])}")
    return number


def converted(fmt: DataFormat, rule: int, *, wide: bool = False) -> int:
    """The number of a format that a converter makes, as the ops take it.

    Args:
        wide: the packer reads float32, not 16 bits.
    """
    if rule == PYBUDA or (rule == HOST and not fmt.is_block):
        return fmt.value  # the host makes single values as PyBuda does
    return fmt.value | (rule | wide << 3) << 8


def silicon_mode(
    op: str, fmt: DataFormat, chip: object, k_block: object = None, l1_accumulate: object = False
) -> int:
    """Return the mode of sums of a chip's matrix unit, as the ops take it.

    Args:
        fmt: the operands' format.
        chip: whose matrix unit.
        k_block: how many tiles of K (32 products each) are summed at a time; None: all.
        l1_accumulate: whether blocks are added in memory by the packer.

    Raises:
        FormatError: no rule for the chip or the format, or no such block.
    """
    if not isinstance(chip, str) or chip not in CHIPS:
        raise FormatError(
            f"{op}: chip is {chip!r}, which has no rule of silicon; allowed: {', '.join(CHIPS)}"
        )
    if fmt not in FORMATS[PACKER] and not fmt.is_integer:
        raise FormatError(
            f"{op}: no rule of silicon for {fmt.name} on {chip}; allowed: {_names(FORMATS[PACKER])}, integers"
        )
    check_flag(op, "l1_accumulate", l1_accumulate)
    if k_block is not None and (type(k_block) is not int or not 1 <= k_block <= _LARGEST_BLOCK):
        raise FormatError(
            f"{op}: k_block is {k_block!r}; allowed: tiles of 32 products, from 1 to {_LARGEST_BLOCK}, "
            "or None"
        )
    short = fmt.exponent_family is ExponentFamily.A
    adds = _ADDS_IN_MEMORY if l1_accumulate else 0
    return _ON | CHIPS[chip] | (_SHORT if short else 0) | adds | (k_block or 0) << _BLOCK_SHIFT


def has_blocks(mode: int) -> bool:
    """Whether sums of a mode, as the ops take it, go over K in blocks."""
    return mode >> _BLOCK_SHIFT > 0


def is_blackhole(mode: int) -> bool:
    """Whether a mode's sums are those of Blackhole."""
    return bool(mode & CHIPS["blackhole"])


def without_blocks(mode: int) -> int:
    """The mode of sums of a matrix unit that go over all of K at a time."""
    return mode & ((1 << _BLOCK_SHIFT) - 1)


def check_no_blocks(op: str, k_block: object, l1_accumulate: object) -> None:
    """Refuse blocks of K where sums are not those of a matrix unit.

    Raises:
        FormatError: there are any.
    """
    check_flag(op, "l1_accumulate", l1_accumulate)
    for name, value in (("k_block", k_block), ("l1_accumulate", l1_accumulate or None)):
        if value is not None:
            raise FormatError(f"{op}: {name} is {value!r} in mode 'fast'; allowed: mode='silicon'")


def check_destination(op: str, fmt: DataFormat, accumulate: DataFormat) -> None:
    """Refuse sums that the matrix unit does not keep of operands in a format.

    Raises:
        FormatError: sums of 16 bits of the other exponent family, or integers beside floats.
    """
    own = DataFormat.Float16 if fmt.exponent_family is ExponentFamily.A else DataFormat.Float16_b
    allowed = (DataFormat.Int32,) if fmt.is_integer else (own, DataFormat.Float32)
    if accumulate is DataFormat.Int32 or accumulate in allowed:
        return
    raise FormatError(
        f"{op}: the matrix unit keeps no sums of {fmt.name} in {accumulate.name}; allowed: {_names(allowed)}"
    )
