"""The description of a chip, and the reader of its file.

A file may come from anywhere: whatever is wrong with it is a :class:`~torch_loom.errors.ChipError`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import Any

from torch_loom import config
from torch_loom.chips import checks
from torch_loom.chips.checks import DTYPES, FORMATS, Check
from torch_loom.chips.cost.families import COEFFICIENTS, FAMILIES
from torch_loom.chips.description import NO_TABLE, Reader, declared, figure, shown
from torch_loom.config.boards import chips_of_board
from torch_loom.errors import ChipError
from torch_loom.ops import FUSED_KERNELS

# The first is at most the second; one without the other says nothing.
_RANGES = (
    ("power_idle_watts", "power_max_watts"),
    ("temperature_idle_celsius", "temperature_max_celsius"),
)


def _coefficients(family: str) -> Check:
    names = tuple(FAMILIES[family].defaults)
    return checks.table(names, _coefficient)


def _coefficient(name: str) -> Check:
    known = COEFFICIENTS[name]

    def apply(value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError
        if not known.low <= value <= known.high:
            raise ValueError
        return float(value)

    return Check(f"a number of {known.unit}, {known.low:g} to {known.high:g}", apply)


@dataclass(frozen=True)
class Chip:
    """What a chip is. Each attribute is a key of the file, where ``_bytes`` at the end is left out.

    A figure that is 0, empty or None is not known or not there. :func:`figures` says what each means and
    takes.
    """

    name: str = figure(checks.name(), "a short name: letters, digits, _ and -")
    description: str = figure(checks.text(), "one line for people")
    memory_bytes: int = figure(checks.memory(), "device memory, as bytes or text such as '16GiB'", "bytes")
    memory_policy: str = figure(
        checks.choice("eager", "lazy"),
        "whether device memory is taken when a tensor is made, or when a device op first needs it",
    )
    dtypes: tuple[str, ...] = figure(checks.names_of(DTYPES), "dtypes that the chip computes in itself")
    amp_dtypes: tuple[str, ...] = figure(
        checks.names_of(checks.AMP_DTYPES), "those of them that torch.autocast may use"
    )
    capability_major: int = figure(checks.whole(0, 99), "its capability")
    capability_minor: int = figure(checks.whole(0, 99), "its capability, the lesser number")
    native_ops: tuple[str, ...] | None = figure(
        checks.ops(),
        "ops that it does itself, as PyTorch names them in aten: 'add' stands for all overloads, in place "
        "and out= too, 'max.default' for that one; 'all' for every op. Copies, views, fills always are",
        default=None,
    )
    fused_kernels: tuple[str, ...] = figure(
        checks.names_of(tuple(FUSED_KERNELS)),
        "kernels it has for what is several ops without them, one command each under every driver; a kernel "
        "that is not named it lacks. " + "; ".join(f"{name}: {what}" for name, what in FUSED_KERNELS.items()),
        default=(),
    )
    deterministic: bool = figure(
        checks.flag(),
        "whether every op gives the same bits in every run; if not, torch.use_deterministic_algorithms(True) "
        "refuses the ops that it documents as nondeterministic on CUDA",
        default=True,
    )
    driver_memory_bytes: int = figure(
        checks.size(), "of `memory`, what the driver keeps; CUDA's total_memory is the rest", "bytes", 0
    )
    context_memory_bytes: int = figure(
        checks.size(), "of the rest, what a process that starts the device takes: context, code", "bytes", 0
    )
    product_name: str = figure(
        checks.text(),
        "what the card calls itself: its device's name under the name cuda. A chip that has one is a GPU of "
        "NVIDIA's: under that name it refuses calls that CUDA has no kernel for",
        default="",
    )
    npu_name: str = figure(
        checks.text(),
        "what Rebellions' tools call the card: its device's name under the name rbln; the chip's if empty",
        default="",
    )
    num_chiplets: int = figure(
        checks.whole(1, 64), "dies of the package, over which memory is spread evenly", "chiplets", 1
    )
    num_cores: int = figure(checks.whole(1, 1_000_000), "cores or multiprocessors that work", "cores", 0)
    grid_rows: int = figure(
        checks.whole(1, 10_000), "rows of the grid of cores, harvested ones too", "cores", 0
    )
    grid_columns: int = figure(checks.whole(1, 10_000), "columns of the grid of cores", "cores", 0)
    harvested_rows: tuple[int, ...] = figure(
        checks.numbers(0, 9_999), "rows that were fused off, by their number on the die", default=()
    )
    clock_mhz: int = figure(checks.whole(1, 100_000), "its highest core clock", "MHz", 0)
    clock_idle_mhz: int = figure(checks.whole(1, 100_000), "its core clock when nothing runs", "MHz", 0)
    power_idle_watts: float = figure(
        checks.number("watts", 100_000), "what it draws when nothing runs", "W", 0.0
    )
    power_max_watts: float = figure(checks.number("watts", 100_000), "what it draws at most", "W", 0.0)
    temperature_idle_celsius: int = figure(checks.whole(1, 1000), "when nothing runs", "°C", 0)
    temperature_max_celsius: int = figure(checks.whole(1, 1000), "at its highest power", "°C", 0)
    tf32: bool = figure(
        checks.flag(), "whether its float32 matrix products can round their operands to TF32", default=False
    )
    warp_size: int = figure(checks.whole(1, 65_536), "threads that run in lockstep", "threads", 0)
    max_threads_per_core: int = figure(checks.whole(1, 1 << 20), "threads that a core holds", "threads", 0)
    max_threads_per_block: int = figure(checks.whole(1, 1 << 20), "threads of one group", "threads", 0)
    registers_per_core: int = figure(checks.whole(1, 1 << 30), "registers of 32 bits", "registers", 0)
    shared_memory_per_core_bytes: int = figure(
        checks.size(), "fast memory of a core that its threads manage", "bytes", 0
    )
    shared_memory_per_block_bytes: int = figure(checks.size(), "of it, for one group of threads", "bytes", 0)
    shared_memory_per_block_optin_bytes: int = figure(
        checks.size(), "of it, for a group that asks for more", "bytes", 0
    )
    sram_per_core_bytes: int = figure(
        checks.size(), "memory of a core that the compiler places buffers in", "bytes", 0
    )
    l2_cache_bytes: int = figure(checks.size(), "the cache that all cores share", "bytes", 0)
    l2_gbps: float = figure(checks.number("GB/s", 1e9), "rate of that cache, as measured", "GB/s", 0.0)
    memory_clock_mhz: int = figure(checks.whole(1, 100_000), "clock of the device memory", "MHz", 0)
    memory_bus_bits: int = figure(checks.whole(1, 1 << 20), "width of its bus", "bits", 0)
    dram_channels: int = figure(checks.whole(1, 10_000), "channels of the device memory", "channels", 0)
    dram_gbps: float = figure(checks.number("GB/s", 1e9), "peak rate of all of them together", "GB/s", 0.0)
    dram_share: float = figure(checks.share(), "of that rate, what large copies reach", "share", 0.0)
    num_links: int = figure(checks.whole(1, 10_000), "links to other chips", "links", 0)
    link_gbps: float = figure(
        checks.number("GB/s", 1e9), "peak rate of one of them in one direction", "GB/s", 0.0
    )
    ring_links: tuple[float, ...] = figure(
        checks.amounts(0.01, 10_000),
        "where no switch joins all chips, how many links of each a ring of 2, 3, … chips uses; the last "
        "number holds for more",
        "links",
        (),
    )
    link_latency_ns: float = figure(checks.number("ns", 1e9), "of a message to a neighbour", "ns", 0.0)
    host_link_gbps: float = figure(checks.number("GB/s", 1e9), "peak rate from and to the host", "GB/s", 0.0)
    kernel_launch_ns: float = figure(
        checks.number("ns", 1e9), "least time of a kernel on the device", "ns", 0.0
    )
    host_issue_ns: float = figure(checks.number("ns", 1e9), "what the host takes to issue an op", "ns", 0.0)
    host_of: str = figure(
        checks.name(),
        "the shipped chip whose host this one has, where this file does not give its time",
        default="",
    )
    workspace_bytes: int = figure(
        checks.size(),
        "device memory that its library of matrix products takes at the first in a thread and on a stream; "
        "a backward pass has a thread of its own",
        "bytes",
        0,
    )
    linear_workspace_bytes: int = figure(
        checks.size(),
        "the same of matrix products to which a bias is added, where they do not work in the same memory "
        "(TORCH_CUBLASLT_UNIFIED_WORKSPACE is 0)",
        "bytes",
        0,
    )
    derating: float = figure(checks.share(), "of all rates, what a plan may count on", "share", 1.0)
    is_integrated: bool = figure(checks.flag(), "whether it shares the host's memory", default=False)
    peak_tflops: Mapping[str, float] = figure(
        checks.table(DTYPES + FORMATS, lambda _: checks.number("TFLOP/s", 1e9)),
        "peak rate of matrix products by dtype or format, a multiply-add counted as two",
        "TFLOP/s",
        NO_TABLE,
    )
    efficiency_of: str = figure(
        checks.name(), "the shipped chip whose efficiency applies where this file gives none", default=""
    )
    efficiency: Mapping[str, Mapping[str, float]] = figure(
        checks.table(tuple(FAMILIES), _coefficients),
        "coefficients of the cost model by family of kernels",
        default=NO_TABLE,
    )
    l2_full_share: float = figure(
        checks.share(),
        "of that cache, what a kernel's operands may fill to be read from it alone",
        "share",
        0.0,
    )
    l2_none_share: float = figure(
        checks.number("shares", 4.0), "of that cache, from what size on nothing of them stays", "share", 0.0
    )
    l2_write_cost: float = figure(
        checks.number("bytes", 10.0), "read bytes that a written byte costs there", "bytes", 0.0
    )
    sources: Mapping[str, str] = figure(
        Check("a table of texts, by key", lambda value: value),
        "where each figure comes from",
        default=NO_TABLE,
    )

    @property
    def total_memory_bytes(self) -> int:
        """What CUDA's total_memory is: the memory but for what the driver keeps."""
        return self.memory_bytes - self.driver_memory_bytes


def figures() -> dict[str, Field[Any]]:
    """Return the declarations of all figures by key of the file; ``metadata`` has check, meaning and unit."""
    return declared(Chip)


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
    return _reader(chip).read()


def with_host(described: Chip) -> Chip:
    """Return a chip with the host that TORCH_LOOM_HOST_ISSUE says, where it is set."""
    issue_us = config.host_issue_us()
    return described if issue_us is None else replace(described, host_of="", host_issue_ns=issue_us * 1e3)


def given(chip: str | os.PathLike[str]) -> frozenset[str]:
    """Return the keys that a description has: all other figures have their default values.

    Arguments and errors are those of :func:`load`.
    """
    return frozenset(_reader(chip).parse())


def _reader(chip: str | os.PathLike[str]) -> _Reader:
    text = os.fsdecode(chip)
    if isinstance(chip, str) and not text.endswith(".toml") and os.path.basename(text) == text:
        names = available()
        if text not in names:
            lower = text.lower()
            begun = [name for name in names if len(text) > 2 and name.startswith(lower)]
            part = [name for name in names if name in re.split(r"[^a-z0-9]+", lower)]
            close = part or difflib.get_close_matches(lower, names, n=1) or begun
            meant = f"Did you mean {close[0]!r}? " if close else ""
            if board := chips_of_board(text):
                meant = f"{board}. "
            raise ChipError(
                f"There is no chip {shown(text)}. {meant}Shipped are: {', '.join(names)}; the path of a "
                "description of your own ends in .toml."
            )
        return _Reader(Path(__file__).with_name(f"{text}.toml"))
    return _Reader(Path(text))


class _Reader(Reader):
    error = ChipError
    noun = "chip description"
    takes = "TORCH_LOOM_CHIP takes a name or a path"

    def read(self) -> Chip:
        values = self.values(Chip)
        for dtype in values["amp_dtypes"]:
            if dtype not in values["dtypes"]:
                self.fail_value(
                    "amp_dtypes", list(values["amp_dtypes"]), "dtypes that are in 'dtypes' as well"
                )
        self.check_ranges(values)
        kept = values.get("driver_memory_bytes", 0) + values.get("context_memory_bytes", 0)
        if kept >= values["memory_bytes"]:
            allowed = f"less than memory = {values['memory_bytes']}"
            self.fail_value("driver_memory and context_memory", kept, f"together {allowed}")
        self.check_grid(values)
        for key in ("efficiency_of", "host_of"):
            if values.get(key, "") not in ("", *available()):
                self.fail_value(key, values[key], ", ".join(available()))
        if "host_of" in values:
            values.setdefault("host_issue_ns", load(values["host_of"]).host_issue_ns)
        return Chip(**values)

    def check_ranges(self, values: Mapping[str, Any]) -> None:
        """Complain about a lower figure above the upper one, or one of the two without the other."""
        for low, high in _RANGES:
            if (low in values) != (high in values):
                self.fail(f"only one of {low!r} and {high!r} is there", "both or neither")
        for low, high in (*_RANGES, ("clock_idle_mhz", "clock_mhz"), ("l2_full_share", "l2_none_share")):
            if low in values and values[low] > values.get(high, 0):
                self.fail_value(low, values[low], f"at most {high} = {values.get(high, 'missing')}")

    def check_grid(self, values: Mapping[str, Any]) -> None:
        """Complain about a grid that is not the number of cores."""
        rows, columns = values.get("grid_rows", 0), values.get("grid_columns", 0)
        harvested = values.get("harvested_rows", ())
        if (rows == 0) != (columns == 0):
            self.fail("only one of 'grid_rows' and 'grid_columns' is there", "both or neither")
        if harvested and not len(harvested) < rows:
            self.fail_value("harvested_rows", list(harvested), f"fewer rows than grid_rows = {rows}")
        cores = (rows - len(harvested)) * columns
        if rows and values.get("num_cores", cores) != cores:
            words = f"{cores}: grid_rows less harvested_rows, times grid_columns"
            self.fail_value("num_cores", values["num_cores"], words)
