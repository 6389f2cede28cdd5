"""Data formats and math fidelity of the Tensix family, defined in docs/numerics.md.

Values of the enums are PyBuda's.
"""

from __future__ import annotations

import enum

from torch_loom.errors import FormatError

TILE_ELEMENTS = 32 * 32
BLOCK_ELEMENTS = 16
_TILE_EXPONENT_BYTES = TILE_ELEMENTS // BLOCK_ELEMENTS
# On-chip buffers and DRAM queues keep a header and padding with each tile (tt-buda's tile sizes).
_TILE_HEADER_BYTES, _TILE_PADDING_BYTES = 16, 16


class ExponentFamily(enum.Enum):
    """Which exponent a format has: the inputs of one op share it."""

    A = "a"
    """5 bits, bias 15: Float16, Lf8, Bfp8, Bfp4, Bfp2."""
    B = "b"
    """8 bits, bias 127: Float32, Float16_b, Bfp8_b, Bfp4_b, Bfp2_b."""
    INTEGER = "integer"
    """None: the integer formats, which fit any family."""


class _Coded(enum.Enum):
    """An enum whose members are written as their names and are integers to C++."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def to_json(self) -> str:
        """Return the member's name."""
        return self.name


class DataFormat(_Coded):
    """How an element of a tensor is stored. ``Invalid`` stands for none: any use of it is an error."""

    Float32 = 0
    Float16 = 1
    Bfp8 = 2
    Bfp4 = 3
    Float16_b = 5
    Bfp8_b = 6
    Bfp4_b = 7
    Int32 = 8
    Lf8 = 10
    Bfp2 = 11
    UInt16 = 12
    Int8 = 14
    Bfp2_b = 15
    RawUInt8 = 240
    RawUInt16 = 241
    RawUInt32 = 242
    Invalid = 255

    @classmethod
    def from_json(cls, text: str) -> DataFormat:
        """Return the member of this name.

        Raises:
            FormatError: there is none.
        """
        try:
            return cls[text]
        except (KeyError, TypeError):
            raise FormatError(f"from_json: {text!r} is no data format: {_names(cls)}") from None

    @property
    def is_block(self) -> bool:
        """Whether 16 elements share an exponent."""
        return self.name.startswith("Bfp")

    @property
    def is_integer(self) -> bool:
        """Whether its values are integers."""
        return self in _INTEGER_RANGES

    @property
    def exponent_family(self) -> ExponentFamily:
        """The family of its exponent."""
        self._check("exponent_family")
        if self.is_integer:
            return ExponentFamily.INTEGER
        is_b = self is DataFormat.Float32 or self.name.endswith("_b")
        return ExponentFamily.B if is_b else ExponentFamily.A

    @property
    def significand_bits(self) -> int:
        """Bits of an element's magnitude, the leading one among them; 0 for integers."""
        self._check("significand_bits")
        return _SIGNIFICAND_BITS.get(self, 0)

    @property
    def bits(self) -> int:
        """Bits of an element; a block's shared exponent is not among them."""
        self._check("bits")
        return self.significand_bits + 1 if self.is_block else _BITS[self]

    @property
    def bytes_per_tile(self) -> int:
        """Bytes of a packed tile of 32 x 32 elements, as :func:`pack` makes it."""
        self._check("bytes_per_tile")
        return TILE_ELEMENTS * self.bits // 8 + (_TILE_EXPONENT_BYTES if self.is_block else 0)

    @property
    def bytes_per_buffered_tile(self) -> int:
        """Bytes of a tile in an on-chip buffer or a DRAM queue: with header and padding."""
        return self.bytes_per_tile + _TILE_HEADER_BYTES + _TILE_PADDING_BYTES

    @property
    def bytes_per_element(self) -> float:
        """Bytes of a packed tile per element, its share of an exponent included."""
        return self.bytes_per_tile / TILE_ELEMENTS

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest finite value."""
        self._check("range")
        if self in _INTEGER_RANGES:
            low, high = _INTEGER_RANGES[self]
            return float(low), float(high)
        largest = _LARGEST.get(self)
        if largest is None:
            top = 31 - 15 if self.exponent_family is ExponentFamily.A else 254 - 127
            largest = (2**self.significand_bits - 1) * 2.0 ** (top - (self.significand_bits - 1))
        return -largest, largest

    @property
    def smallest(self) -> float:
        """The smallest value above zero."""
        self._check("smallest")
        if self.is_integer:
            return 1.0
        bottom = -14 if self.exponent_family is ExponentFamily.A else -126
        if self.is_block:
            # A shared exponent of 0 is a value in the 5-bit formats, and a block of zeros in the others.
            bottom = -15 if self.exponent_family is ExponentFamily.A else -126
            return float(2.0 ** (bottom - (self.significand_bits - 1)))
        return float(2.0**bottom)

    @property
    def epsilon(self) -> float:
        """The step above 1.0: of a block format, in a block whose largest value is in [1, 2)."""
        self._check("epsilon")
        return 1.0 if self.is_integer else float(2.0 ** -(self.significand_bits - 1))

    def _check(self, what: str) -> None:
        if self is DataFormat.Invalid:
            raise FormatError(
                f"{what}: DataFormat.Invalid stands for no format; take one of {_names(DataFormat)}"
            )


_INTEGER_RANGES = {
    DataFormat.Int8: (-(2**7), 2**7 - 1),
    DataFormat.Int32: (-(2**31), 2**31 - 1),
    DataFormat.UInt16: (0, 2**16 - 1),
    DataFormat.RawUInt8: (0, 2**8 - 1),
    DataFormat.RawUInt16: (0, 2**16 - 1),
    DataFormat.RawUInt32: (0, 2**32 - 1),
}
_BITS = {
    DataFormat.Float32: 32,
    DataFormat.Float16: 16,
    DataFormat.Float16_b: 16,
    DataFormat.Lf8: 8,
    DataFormat.Int8: 8,
    DataFormat.Int32: 32,
    DataFormat.UInt16: 16,
    DataFormat.RawUInt8: 8,
    DataFormat.RawUInt16: 16,
    DataFormat.RawUInt32: 32,
}
_SIGNIFICAND_BITS = {
    DataFormat.Float32: 24,
    DataFormat.Float16: 11,
    DataFormat.Float16_b: 8,
    DataFormat.Lf8: 3,
    DataFormat.Bfp8: 7,
    DataFormat.Bfp8_b: 7,
    DataFormat.Bfp4: 3,
    DataFormat.Bfp4_b: 3,
    DataFormat.Bfp2: 1,
    DataFormat.Bfp2_b: 1,
}
_LARGEST = {
    DataFormat.Float32: (2 - 2.0**-23) * 2.0**127,
    DataFormat.Float16: 65504.0,
    DataFormat.Float16_b: (2 - 2.0**-7) * 2.0**127,
    DataFormat.Lf8: 114688.0,
}


class MathFidelity(_Coded):
    """How many passes a product takes, and so which bits of its operands it sees."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255

    @classmethod
    def from_json(cls, text: str) -> MathFidelity:
        """Return the member of this name.

        Raises:
            FormatError: there is none.
        """
        try:
            return cls[text]
        except (KeyError, TypeError):
            raise FormatError(f"from_json: {text!r} is no math fidelity: {_names(cls)}") from None

    @property
    def num_passes(self) -> int:
        """Passes of a product: 1 to 4."""
        if self is MathFidelity.Invalid:
            raise FormatError(
                f"num_passes: MathFidelity.Invalid stands for none; take one of {_names(MathFidelity)}"
            )
        return max(1, int(self))


def _names(kind: type[enum.Enum]) -> str:
    return ", ".join(member.name for member in kind if member.name != "Invalid")
