"""How the ops of one part of a program are computed, and which part a user's pattern means."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch_loom.errors import FormatError
from torch_loom.numerics._checks import (
    check_accumulate,
    check_families,
    check_fidelity,
    check_format,
    check_formats,
    check_mode,
    written_format,
)
from torch_loom.numerics._ops import ops
from torch_loom.numerics._silicon import (
    FORMATS,
    HOST,
    PACKER,
    PACKER_PRECISE,
    check_destination,
    check_no_blocks,
    converted,
    silicon_mode,
)
from torch_loom.numerics.emulation.patterns import is_within, matches
from torch_loom.numerics.emulation.rules import LOSSES, WIDE
from torch_loom.numerics.formats import DataFormat, ExponentFamily, MathFidelity
from torch_loom.numerics.products import default_accumulate

# Significand bits that reach the multiplier, of SrcA and of SrcB.
_KEPT_BITS = {
    MathFidelity.LoFi: (5, 7),
    MathFidelity.HiFi2: (10, 7),
    MathFidelity.HiFi3: (10, 7),
    MathFidelity.HiFi4: (10, 11),
}
# That of fast products, by fidelity and the format of sums.
_FAST_FIDELITIES = {
    (fidelity, accumulate): MathFidelity(ops._fast_fidelity(fidelity.value, accumulate.value))
    for fidelity in _KEPT_BITS
    for accumulate in (DataFormat.Float32, DataFormat.Float16, DataFormat.Float16_b)
}


@dataclass(frozen=True)
class Precision:
    """Format, fidelity, accumulate format and mode of an op."""

    format: DataFormat
    fidelity: MathFidelity
    accumulate: DataFormat
    silicon: int = 0
    """Sums as a chip's matrix unit makes them, as the ops take it; 0: fast."""
    packer: int = PACKER
    """What writes results under silicon."""

    @property
    def wide(self) -> DataFormat:
        """The format of results that a chip computes wider: 16 bits of the same family."""
        if self.format is DataFormat.Float32 or self.format.is_integer:
            return DataFormat.Float32
        is_b = self.format.exponent_family is ExponentFamily.B
        return DataFormat.Float16_b if is_b else DataFormat.Float16

    @property
    def taken(self) -> int:
        """What the ops take for the format of operands that come from outside: the host converts those."""
        return self._number(self.format, HOST)

    def made(self, fmt: DataFormat) -> int:
        """What the ops take for the format of a result: the packer writes those."""
        return self._number(fmt, self.packer)

    def _number(self, fmt: DataFormat, rule: int) -> int:
        if not self.silicon or fmt is DataFormat.Float32 or fmt not in FORMATS[rule]:
            return fmt.value
        return converted(fmt, rule, wide=rule != HOST and self.accumulate is DataFormat.Float32)

    @property
    def fits(self) -> bool:
        """Whether no bit of an operand in the format is lost to the fidelity: nothing needs a mask."""
        bits = self.format.significand_bits
        kept_a, kept_b = _KEPT_BITS[self.fidelity]
        return 0 < bits <= min(kept_a, kept_b)

    @property
    def summed(self) -> Precision:
        """As fast products are summed, which need not tell each fidelity from the next."""
        if self.silicon:
            return self
        return replace(self, fidelity=_FAST_FIDELITIES.get((self.fidelity, self.accumulate), self.fidelity))


def full_fidelity(fmt: DataFormat) -> MathFidelity:
    """Return the cheapest fidelity that sees all bits of a format; HiFi4 where none does."""
    for fidelity, (kept_a, kept_b) in _KEPT_BITS.items():
        if 0 < fmt.significand_bits <= min(kept_a, kept_b):
            return fidelity
    return MathFidelity.HiFi4


# What an override may be: a format, a fidelity, several of emulate()'s arguments, or None for exact.
Override = DataFormat | MathFidelity | Mapping[str, Any] | None

_PACKERS = {"packer": PACKER, "packer_precise": PACKER_PRECISE}
_KEYS = ("format", "fidelity", "accumulate", "mode")
# Of the matrix unit: its chip, tiles of K in a block, whether blocks are added in memory.
Unit = tuple[str, int | None, bool]


class Settings:
    """The arguments of ``emulate``, checked: which precision an op has, by the module and the op's name."""

    def __init__(
        self,
        fmt: DataFormat,
        fidelity: MathFidelity | None,
        accumulate: DataFormat | None,
        mode: str,
        overrides: Mapping[str, Override],
        formats: Collection[DataFormat] | None,
        unit: Unit = ("wormhole_b0", None, False),
        packer: str = "packer",
    ) -> None:
        self.unit = unit
        if not isinstance(packer, str) or packer not in _PACKERS:
            raise FormatError(f"emulate: packer is {packer!r}; allowed: {', '.join(_PACKERS)}")
        self.packer = _PACKERS[packer]
        self.formats = None if formats is None else frozenset(check_formats("emulate", formats))
        self.default = self._precision("emulate", fmt, fidelity, accumulate, mode, is_global=True)
        self._given = (fmt, fidelity, accumulate, mode)
        if not isinstance(overrides, Mapping) or not all(isinstance(each, str) for each in overrides):
            raise FormatError(
                f"emulate: overrides is {overrides!r}; allowed: a dict whose keys are patterns of names"
            )
        self.overrides = {pattern: self._override(pattern, value) for pattern, value in overrides.items()}
        if not any(each is not None and each.silicon for each in (self.default, *self.overrides.values())):
            check_no_blocks("emulate", unit[1], unit[2])
            if self.packer != PACKER:
                raise FormatError(f"emulate: packer is {packer!r} in mode 'fast'; allowed: mode='silicon'")
        formats_in_use = {"the default": fmt} | {
            f"overrides[{pattern!r}]": precision.format
            for pattern, precision in self.overrides.items()
            if precision is not None
        }
        check_families("emulate", formats_in_use)

    def _override(self, pattern: str, value: Override) -> Precision | None:
        where = f"emulate: overrides[{pattern!r}]"
        if value is None:
            return None
        given = value
        if isinstance(value, DataFormat):
            given = {"format": value}
        elif isinstance(value, MathFidelity):
            given = {"fidelity": value}
        if not isinstance(given, Mapping) or not set(given) <= set(_KEYS):
            raise FormatError(
                f"{where} is {value!r}; allowed: a DataFormat, a MathFidelity, None for exact, or a dict of "
                f"{', '.join(_KEYS)}{written_format(value)}"
            )
        fmt, fidelity, accumulate, mode = self._given
        has_format = "format" in given
        return self._precision(
            where,
            given.get("format", fmt),
            given.get("fidelity", None if has_format else fidelity),
            given.get("accumulate", None if has_format else accumulate),
            given.get("mode", mode),
            is_global=False,
        )

    def _precision(
        self, where: str, fmt: Any, fidelity: Any, accumulate: Any, mode: Any, *, is_global: bool
    ) -> Precision:
        fmt = check_format(where, fmt, "format")
        if self.formats is not None and fmt not in self.formats:
            allowed = ", ".join(sorted(member.name for member in self.formats))
            raise FormatError(f"{where}: the chip lacks {fmt.name}; allowed: {allowed}")
        fidelity = full_fidelity(fmt) if fidelity is None else check_fidelity(where, fidelity)
        has_float32 = self.formats is None or DataFormat.Float32 in self.formats
        default = default_accumulate([fmt], has_float32=has_float32)
        if default is DataFormat.Int32 and fidelity is not MathFidelity.HiFi4:
            raise FormatError(f"{where}: {fmt.name} is exact and needs HiFi4, not {fidelity.name}")
        if accumulate is None:
            accumulate = default
        accumulate = check_accumulate(where, accumulate, fidelity)
        if self.formats is not None and accumulate not in self.formats:
            if not is_global:
                raise FormatError(
                    f"{where}: the chip does not keep sums in {accumulate.name}; allowed: {default.name}"
                )
            warnings.warn(
                f"{where}: the chip does not keep sums in {accumulate.name}; {default.name} takes its place",
                stacklevel=5,
            )
            accumulate = default
        silicon = 0
        if check_mode(where, mode):
            silicon = silicon_mode(where, fmt, *self.unit)
            check_destination(where, fmt, accumulate)
        return Precision(fmt, fidelity, accumulate, silicon, self.packer)

    def named(self, path: str, op: str) -> tuple[Precision | None, bool]:
        """Return the precision of an op in a module, and whether a pattern named the op. None: exact.

        :func:`~torch_loom.numerics.emulate` says what patterns mean. The last that fits counts.
        """
        chosen: Precision | None = self.default
        names_op = False
        for pattern, precision in self.overrides.items():
            where, colon, name = pattern.partition(":")
            if colon:
                if is_within(where, path) and (not name or matches(name, op)):
                    chosen, names_op = precision, bool(name)
            elif is_within(pattern, path):
                chosen, names_op = precision, False
            elif matches(pattern, op):
                chosen, names_op = precision, True
        return chosen, names_op


def result_format(precision: Precision, op: str, names_op: bool) -> DataFormat:
    """Return the format of an op's result: the op table's rule, unless a pattern named the op."""
    if not names_op:
        if op in LOSSES:
            return DataFormat.Float32
        if op in WIDE:
            return precision.wide
    return precision.format
