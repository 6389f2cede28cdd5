"""The description of a chip, and the reader of its file.

A file may come from anywhere: whatever is wrong with it is a :class:`~torch_loom.errors.ChipError`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from torch_loom.config.settings import MAX_MEMORY_BYTES, MIN_MEMORY_BYTES, parse_size
from torch_loom.errors import ChipError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Chip", "available", "load"]

MAX_FILE_BYTES = 64 << 10
MAX_TEXT_CHARS = 400
MAX_OPS = 2000

# PyTorch's names; those that a description may use.
DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
)
# The first is at most the second; one without the other says nothing.
_RANGES = (
    ("power_idle_watts", "power_max_watts"),
    ("temperature_idle_celsius", "temperature_max_celsius"),
)
AMP_DTYPES = ("float16", "bfloat16")
# What `fused_kernels` may name.
FUSED_KERNELS = (
    *("attention", "attention_mask", "attention_dropout", "rnn_layer", "rnn_cell", "foreach", "optimizer"),
    "cross_entropy",
)


@dataclass(frozen=True)
class Chip:
    """What a chip is. Each attribute is a key of the file, only ``memory_bytes`` is called ``memory`` there.

    Attributes:
        name: a short name: letters, digits, ``_`` and ``-``.
        description: one line for people.
        memory_bytes: device memory. In the file ``memory``: a whole number of bytes, or text such as
            ``"16GiB"``; 2 MiB to 16 TiB.
        memory_policy: ``"eager"`` takes device memory when a tensor is made, ``"lazy"`` when a device op
            first needs it.
        dtypes: PyTorch's names of the dtypes that the chip computes in itself.
        native_ops: the ops that it does itself, as PyTorch names them in ``aten``: ``"add"`` stands for all
            overloads, in place and ``out=`` too, ``"max.default"`` for that overload; None for every op.
            Copies, views and fills are always native.
        amp_dtypes: those of them that ``torch.autocast`` may use; float16 and bfloat16 can be.
        fused_kernels: the kernels it has for what is several ops without them; none if that is not given. The
            work of one is one command on a stream, under every driver; without it the parts are commands of
            their own. ``attention``: scaled dot-product attention; ``attention_mask``, ``attention_dropout``:
            also with a mask or with dropout; ``rnn_layer``: one direction of an LSTM layer over a whole
            sequence, in float32; ``rnn_cell``: what follows the matrix products in the cells of LSTM and GRU;
            ``foreach``: ops on lists of tensors (``torch._foreach_add_``), as optimizers use them;
            ``optimizer``: whole steps of optimizers (``fused=True``); ``cross_entropy``: log-softmax together
            with the loss.
        capability_major, capability_minor: its capability, 0 to 99.
        num_cores: how many cores or multiprocessors it has; 0 if that is not known.
        clock_mhz: its highest core clock in MHz; 0 if that is not known.
        clock_idle_mhz: its core clock when nothing runs, at most ``clock_mhz``; 0 if that is not known.
        power_idle_watts, power_max_watts: what it draws when nothing runs, and at most; both or neither; 0 if
            that is not known.
        temperature_idle_celsius, temperature_max_celsius: at these two; both or neither; 0 if not known.
        tf32: whether its float32 matrix products can round their operands to TF32.
        warp_size: how many threads run in lockstep. This and the figures below are 0 if there is no such
            thing or it is not known.
        max_threads_per_core, max_threads_per_block: of one core, and of a group of threads on it.
        registers_per_core: of 32 bits.
        shared_memory_per_core_bytes, shared_memory_per_block_bytes, shared_memory_per_block_optin_bytes: fast
            memory that a program manages: of a core, of a group of threads, and of one that asks for more. In
            the file without ``_bytes``, as ``l2_cache``: a number of bytes, or text such as ``"228KiB"``.
        l2_cache_bytes: the cache that all cores share.
        memory_clock_mhz, memory_bus_bits: of the device memory.
        is_integrated: whether it shares the host's memory.
        sources: where each figure comes from, by key of the file.
    """

    name: str
    description: str
    memory_bytes: int
    memory_policy: str
    dtypes: tuple[str, ...]
    amp_dtypes: tuple[str, ...]
    capability_major: int
    capability_minor: int
    native_ops: tuple[str, ...] | None = None
    fused_kernels: tuple[str, ...] = ()
    num_cores: int = 0
    clock_mhz: int = 0
    clock_idle_mhz: int = 0
    power_idle_watts: float = 0.0
    power_max_watts: float = 0.0
    temperature_idle_celsius: int = 0
    temperature_max_celsius: int = 0
    tf32: bool = False
    warp_size: int = 0
    max_threads_per_core: int = 0
    max_threads_per_block: int = 0
    registers_per_core: int = 0
    shared_memory_per_core_bytes: int = 0
    shared_memory_per_block_bytes: int = 0
    shared_memory_per_block_optin_bytes: int = 0
    l2_cache_bytes: int = 0
    memory_clock_mhz: int = 0
    memory_bus_bits: int = 0
    is_integrated: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)


def available() -> tuple[str, ...]:
    """Return the names of the chips that are shipped, in alphabetical order."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))


def load(chip: str | os.PathLike[str]) -> Chip:
    """Read the description of a chip.

    Args:
        chip: the name of a shipped chip, or the path of a description; a path ends in ``.toml`` or has a
            directory in it.

    Raises:
        ChipError: there is no such chip or file, or the file is not a chip description: it is larger than
            64 KiB, not TOML, lacks a key, has an unknown one, or a value of the wrong type or out of range.
    """
    text = os.fsdecode(chip)
    if isinstance(chip, str) and not text.endswith(".toml") and os.path.basename(text) == text:
        if text not in available():
            raise ChipError(
                f"There is no chip {shown(text)}. Shipped are: {', '.join(available())}; the path of a "
                "description of your own ends in .toml."
            )
        return _Reader(Path(__file__).with_name(f"{text}.toml")).read()
    return _Reader(Path(text)).read()


def shown(value: object) -> str:
    """Return a value for a message, cut to one line."""
    text = repr(value)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


class _Reader:
    """Reads one file; every complaint names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Chip:
        table = self.parse()
        known = {entry.name.removesuffix("_bytes"): entry for entry in fields(Chip)}
        for key in table:
            if key not in known:
                self.fail(f"unknown key {shown(key)}", ", ".join(known))
        values: dict[str, Any] = {}
        for key, entry in known.items():
            if key in table:
                values[entry.name] = self.checked(key, table[key])
            elif entry.default is MISSING and entry.default_factory is MISSING:
                self.fail(f"the key {key!r} is missing", f"a description has {', '.join(known)}")
        for dtype in values["amp_dtypes"]:
            if dtype not in values["dtypes"]:
                self.fail_value(
                    "amp_dtypes", list(values["amp_dtypes"]), "dtypes that are in 'dtypes' as well"
                )
        self.check_ranges(values)
        return Chip(**values)

    def check_ranges(self, values: Mapping[str, Any]) -> None:
        """Complain about a lower figure above the upper one, or one of the two without the other."""
        for low, high in _RANGES:
            if (low in values) != (high in values):
                self.fail(f"only one of {low!r} and {high!r} is there", "both or neither")
        for low, high in (*_RANGES, ("clock_idle_mhz", "clock_mhz")):
            if low in values and values[low] > values.get(high, 0):
                self.fail_value(low, values[low], f"at most {high} = {values.get(high, 'missing')}")

    def parse(self) -> dict[str, Any]:
        try:
            # A device or a pipe could go on for ever, or wait; at most one byte too many is read of a file.
            if not self.path.is_file():
                raise ChipError(f"{self.path}: there is no such file; TORCH_LOOM_CHIP takes a name or a path")
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            if isinstance(error, ChipError):
                raise
            raise ChipError(f"{self.path}: the chip description cannot be read: {error}") from None
        if len(content) > MAX_FILE_BYTES:
            self.fail("the file is too large", f"{MAX_FILE_BYTES} bytes")
        try:
            table: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ChipError(f"{self.path}: not a TOML file: {error or 'nested too deeply'}") from None
        return table

    def checked(self, key: str, value: object) -> object:
        return _CHECKS[key](self, key, value)

    def fail(self, what: str, allowed: str) -> NoReturn:
        raise ChipError(f"{self.path}: {what}. Allowed: {allowed}.")

    def fail_value(self, key: str, value: object, allowed: str) -> NoReturn:
        self.fail(f"{key} = {shown(value)}", allowed)

    def text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value or len(value) > MAX_TEXT_CHARS or not value.isprintable():
            self.fail_value(key, value, f"text of one line, 1 to {MAX_TEXT_CHARS} characters")
        return value

    def name(self, key: str, value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value) is None:
            self.fail_value(key, value, "1 to 64 letters, digits, '_' and '-'")
        return value

    def memory(self, key: str, value: object) -> int:
        size_bytes = -1
        if isinstance(value, int) and not isinstance(value, bool):
            size_bytes = value
        elif isinstance(value, str) and len(value) <= MAX_TEXT_CHARS:
            with contextlib.suppress(ValueError):
                size_bytes = parse_size(value)
        if not MIN_MEMORY_BYTES <= size_bytes <= MAX_MEMORY_BYTES:
            self.fail_value(
                key, value, "2MiB to 16TiB, as a whole number of bytes or text with a unit ('16GiB')"
            )
        return size_bytes

    def policy(self, key: str, value: object) -> str:
        if value not in ("eager", "lazy"):
            self.fail_value(key, value, "'eager', 'lazy'")
        return str(value)

    def names_of(self, key: str, value: object, allowed: tuple[str, ...]) -> tuple[str, ...]:
        words = f"a list, without repetition, of {', '.join(allowed)}"
        if not isinstance(value, list) or any(item not in allowed for item in value):
            self.fail_value(key, value, words)
        if len(set(value)) != len(value):
            self.fail_value(key, value, words)
        return tuple(value)

    def ops(self, key: str, value: object) -> tuple[str, ...] | None:
        words = (
            "'all', or a list, without repetition, of names of PyTorch's ops without 'aten::' "
            f"('add', 'max.default'), at most {MAX_OPS}"
        )
        if value == "all":
            return None
        if not isinstance(value, list) or len(value) > MAX_OPS:
            self.fail_value(key, value, words)
        for item in value:
            if not isinstance(item, str) or re.fullmatch(r"\w{1,100}(\.\w{1,100})?", item, re.ASCII) is None:
                self.fail_value(key, item, words)
        if len(set(value)) != len(value):
            self.fail_value(key, value, words)
        return tuple(value)

    def whole(self, key: str, value: object, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail_value(key, value, f"a whole number, {low} to {high}")
        return value

    def size(self, key: str, value: object) -> int:
        size_bytes = -1
        if isinstance(value, int) and not isinstance(value, bool):
            size_bytes = value
        elif isinstance(value, str) and len(value) <= MAX_TEXT_CHARS:
            with contextlib.suppress(ValueError):
                size_bytes = parse_size(value)
        if not 1 <= size_bytes <= 1 << 40:
            self.fail_value(
                key, value, "1B to 1TiB, as a whole number of bytes or text with a unit ('48KiB')"
            )
        return size_bytes

    def watts(self, key: str, value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 100_000:
            self.fail_value(key, value, "a number of watts, above 0, to 100000")
        return float(value)

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            self.fail_value(key, value, "true, false")
        return value

    def sources(self, key: str, value: object) -> Mapping[str, str]:
        if not isinstance(value, dict):
            self.fail_value(key, value, "a table of texts, by key")
        for figure, source in value.items():
            if figure not in _CHECKS or figure == "sources":
                self.fail(
                    f"sources: unknown key {shown(figure)}", ", ".join(k for k in _CHECKS if k != "sources")
                )
            self.text(f"sources.{figure}", source)
        return MappingProxyType(dict(value))


_CHECKS: dict[str, Callable[[_Reader, str, object], object]] = {
    "name": _Reader.name,
    "description": _Reader.text,
    "memory": _Reader.memory,
    "memory_policy": _Reader.policy,
    "dtypes": lambda reader, key, value: reader.names_of(key, value, DTYPES),
    "amp_dtypes": lambda reader, key, value: reader.names_of(key, value, AMP_DTYPES),
    "native_ops": _Reader.ops,
    "fused_kernels": lambda reader, key, value: reader.names_of(key, value, FUSED_KERNELS),
    "capability_major": lambda reader, key, value: reader.whole(key, value, 0, 99),
    "capability_minor": lambda reader, key, value: reader.whole(key, value, 0, 99),
    "num_cores": lambda reader, key, value: reader.whole(key, value, 1, 1_000_000),
    "clock_mhz": lambda reader, key, value: reader.whole(key, value, 1, 100_000),
    "clock_idle_mhz": lambda reader, key, value: reader.whole(key, value, 1, 100_000),
    "power_idle_watts": _Reader.watts,
    "power_max_watts": _Reader.watts,
    "temperature_idle_celsius": lambda reader, key, value: reader.whole(key, value, 1, 1000),
    "temperature_max_celsius": lambda reader, key, value: reader.whole(key, value, 1, 1000),
    "tf32": _Reader.flag,
    "warp_size": lambda reader, key, value: reader.whole(key, value, 1, 65_536),
    "max_threads_per_core": lambda reader, key, value: reader.whole(key, value, 1, 1 << 20),
    "max_threads_per_block": lambda reader, key, value: reader.whole(key, value, 1, 1 << 20),
    "registers_per_core": lambda reader, key, value: reader.whole(key, value, 1, 1 << 30),
    "shared_memory_per_core": _Reader.size,
    "shared_memory_per_block": _Reader.size,
    "shared_memory_per_block_optin": _Reader.size,
    "l2_cache": _Reader.size,
    "memory_clock_mhz": lambda reader, key, value: reader.whole(key, value, 1, 100_000),
    "memory_bus_bits": lambda reader, key, value: reader.whole(key, value, 1, 1 << 20),
    "is_integrated": _Reader.flag,
    "sources": _Reader.sources,
}
