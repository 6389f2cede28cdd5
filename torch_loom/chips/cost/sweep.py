"""Reads a sweep, a file of op timings. It may come from anywhere: whatever is wrong is a ChipError."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from torch_loom.chips.cost.formulas import BATCHED, FUSED, IMPLICIT
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.cost.lowerings.common import NARROW
from torch_loom.chips.cost.records import ITEM_BYTES, Kernel, Op
from torch_loom.chips.cost.sweep_ops import COLLECTIVES, GEOMETRY, LAYOUTS, MAX_GEOMETRY, OPS, Row
from torch_loom.config.files import no_file
from torch_loom.errors import ChipError

MAX_FILE_BYTES = 64 << 20
MAX_CASES = 100_000
MAX_SIZE = 1 << 40
# NeuSight writes the sizes of products as [batch,] m, n, k, where a sweep has the depth before the columns.
# Its A100 ran all batches by tiles of 128 x 128: by this order they take what such tiles take within 3%.
DEPTH_LAST_SOURCE = "NeuSight"
DEPTH_LAST = ("linear", "bmm")
# The kernels of cuDNN 7 take half-precision images as they lie, channels first: what DeepBench timed of them
# has no conversions in it (without them its fitted half is forecast within 15 instead of 22% on a V100).
# cuDNN 8 and later want channels innermost, as lowerings suppose.
ANY_LAYOUT_SOURCE = "cuDNN 7"
# What such a file calls `device_ms` is `ms` less a floor: what the host's call of that op takes between two
# events where the kernel is short. What the host does behind a launch runs beside a kernel that is long, so
# that too much was taken away: half of the file's least floor. Six streaming ops on each of three cards say
# 0.42 to 0.69 of it, in the middle 0.51 (their times are bytes by a rate less this, within 1%).
FLOORED = "less the floor"
HIDDEN_SHARE = 0.5


class Case(NamedTuple):
    """One timing: what ran, its kernels, and the nanoseconds that it took on the device.

    A collective has no kernels of one chip; its shape is ranks and bytes. ``ran`` is which of
    :data:`torch_loom.chips.cost.formulas.ALGORITHMS` a convolution went by, where the row says it.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    kernels: tuple[Kernel, ...]
    device_ns: float
    key: str = ""
    ran: str = ""

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return f"{self.op} {list(self.shape)} {self.dtype}"


def describe(op: str, shape: list[int], dtype: str) -> Op:
    """Return the op that a row of a sweep timed."""
    return OPS[op][1](Row(dtype, tuple(shape)))


def device_of(path: Path) -> str:
    """Return what a sweep says of the card that was timed; empty where it says nothing.

    Raises:
        ChipError: the file cannot be read.
    """
    content = _content(path)
    found = content.get("device", "") if isinstance(content, dict) else ""
    return found if isinstance(found, str) else ""


def is_fitted(key: str) -> bool:
    """Return whether a row belongs to the half that is fitted, by a hash of what it timed."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0


def read(path: Path) -> list[Case]:
    """Read a sweep: ``{"ops": [{op, shape, dtype, ms, device_ms?}]}``.

    ``device_ms`` is preferred; ``ms``, with the host's part in it, is taken where there is no other. What
    other keys of a row mean, :class:`~torch_loom.chips.cost.sweep_ops.Row` says; those that it does not name
    are not read.

    Raises:
        ChipError: the file cannot be read, or a row has an unknown op or a value that makes no sense.
    """
    content = _content(path)
    rows = content.get("ops") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > MAX_CASES:
        raise ChipError(
            f"{path}: not a sweep. Allowed: an object whose 'ops' is a list of 1 to {MAX_CASES} rows."
        )
    source = content.get("source", "")
    depth_last = DEPTH_LAST if isinstance(source, str) and DEPTH_LAST_SOURCE in source else ()
    layout = "nhwc" if ANY_LAYOUT_SOURCE in str(content.get("torch", "")) else ""
    cases = [_case(path, number, row, depth_last, layout) for number, row in enumerate(rows)]
    if FLOORED not in str(content.get("measured", "")):
        return cases
    wholes = [_milliseconds(f"{path}: ops[{number}]", "ms", row.get("ms")) for number, row in enumerate(rows)]
    floor = min(whole - case.device_ns for whole, case in zip(wholes, cases, strict=True))
    return [case._replace(device_ns=case.device_ns + HIDDEN_SHARE * max(floor, 0.0)) for case in cases]


def _milliseconds(where: str, name: str, value: object) -> float:
    """Return nanoseconds of a time of a row, checked."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise ChipError(f"{where}: {name} = {value!r:.100}. Allowed: milliseconds, above 0.")
    return float(value) * 1e6


def _content(path: Path) -> Any:
    try:
        if (reason := no_file(path)) is not None:
            raise ChipError(f"{path}: {reason}")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ChipError(f"{path}: the sweep cannot be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ChipError(f"{path}: the file is too large. Allowed: {MAX_FILE_BYTES} bytes.")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChipError(f"{path}: not a JSON file: {error or 'nested too deeply'}") from None


def _case(path: Path, number: int, row: object, depth_last: tuple[str, ...], layout: str) -> Case:
    where = f"{path}: ops[{number}]"
    if not isinstance(row, dict):
        raise ChipError(f"{where}: must be an object, got {type(row).__name__}")
    op, dtype, shape = row.get("op"), row.get("dtype"), row.get("shape")
    if not isinstance(op, str) or op not in (*OPS, *COLLECTIVES):
        raise ChipError(f"{where}: unknown op {op!r:.100}. Allowed: {', '.join((*OPS, *COLLECTIVES))}.")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ChipError(f"{where}: unknown dtype {dtype!r:.100}. Allowed: {', '.join(ITEM_BYTES)}.")
    count = OPS[op][0] if op in OPS else 2
    if not isinstance(shape, list) or not _whole(shape, count, 1, MAX_SIZE):
        raise ChipError(f"{where}: shape = {shape!r:.100}. Allowed: {count} whole numbers, 1 to {MAX_SIZE}.")
    took = _milliseconds(where, "device_ms", row.get("device_ms", row.get("ms")))
    if op in depth_last:
        shape = [*shape[:-2], shape[-1], shape[-2]]
    described = Row(dtype, tuple(shape), _geometry(where, row), *_others(where, row))
    laid_out = described._replace(layout=described.layout or (layout if dtype in NARROW else ""))
    kernels = tuple(lower(OPS[op][1](laid_out))) if op in OPS else ()
    key = json.dumps([op, *described], sort_keys=True)
    return Case(op, tuple(shape), dtype, kernels, took, key, _ran(row) if op == "conv2d" else "")


def _ran(row: dict[str, Any]) -> str:
    """Return a convolution's algorithm by the names of its kernels, or by cuDNN's name of it."""
    names = str(row.get("kernels") or row.get("algo") or "").lower()
    if "winograd" in names:
        return BATCHED if "nonfused" in names else FUSED
    return IMPLICIT if names else ""


def _whole(value: object, count: int, low: int, high: int) -> bool:
    """Return whether a value is a list of so many whole numbers within limits."""
    return (
        isinstance(value, list)
        and len(value) == count
        and all(
            isinstance(size, int) and not isinstance(size, bool) and low <= size <= high for size in value
        )
    )


def _geometry(where: str, row: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = {}
    for name in GEOMETRY:
        value = row.get(name)
        if value is None:
            continue
        value = [value, value] if isinstance(value, int) and not isinstance(value, bool) else value
        low = 0 if name == "pad" else 1
        if not _whole(value, 2, low, MAX_GEOMETRY):
            raise ChipError(f"{where}: {name} = {value!r:.100}. Allowed: 2 whole numbers, {low} or more.")
        found[name] = (value[0], value[1])
    return found


def _others(where: str, row: dict[str, Any]) -> tuple[str, int]:
    layout, groups = row.get("layout", ""), row.get("groups", 1)
    if layout not in LAYOUTS:
        raise ChipError(f"{where}: layout = {layout!r:.100}. Allowed: {', '.join(LAYOUTS[1:])}.")
    if not _whole([groups], 1, 1, MAX_GEOMETRY):
        raise ChipError(f"{where}: groups = {groups!r:.100}. Allowed: a whole number, 1 or more.")
    return layout, groups
