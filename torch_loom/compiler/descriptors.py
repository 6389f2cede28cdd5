"""Descriptors: files of YAML that say which chips there are and which cores of them work."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from torch_loom.compiler.plan.model import Grid
from torch_loom.config.files import no_file
from torch_loom.errors import CompilerOptionError

MAX_BYTES = 1 << 20
MAX_CHIPS = 32
_DEVICE, _CLUSTER = "backend_device_descriptor_path", "backend_cluster_descriptor_path"
# Bytes of a core's memory: those that a program needs at all, and more than any has.
SRAM_RANGE = (1 << 10, 1 << 30)


@functools.lru_cache(maxsize=32)
def _yaml_of(path: str, changed: float) -> Any:
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def read_yaml(option: str, path: str) -> dict[str, Any]:
    """Return the mapping that a YAML file has.

    Raises:
        CompilerOptionError: it cannot be read, is larger than :data:`MAX_BYTES` or has no mapping; the
            message names the option.
    """
    reason = no_file(path)
    if reason is None and (size := Path(path).stat().st_size) > MAX_BYTES:
        reason = f"it has {size:,} bytes, and descriptors have {MAX_BYTES:,} at most"
    if reason is not None:
        raise CompilerOptionError(f"{option}={path!r}: {reason}")
    try:
        data = _yaml_of(path, Path(path).stat().st_mtime)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise CompilerOptionError(f"{option}={path!r}: the file cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise CompilerOptionError(
            f"{option}={path!r}: the file has {type(data).__name__}, not keys and values"
        )
    return data


def check_number(option: str, path: str, name: str, value: object, least: float, most: float) -> None:
    """Check a number of a file; it is whole where ``least`` is.

    Raises:
        CompilerOptionError: it is no such number, or less than ``least`` or more than ``most``.
    """
    kinds, what = (int, "a whole number") if isinstance(least, int) else (int | float, "a number")
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise CompilerOptionError(
            f"{option}={path!r}: {name} is {reprlib.repr(value)}; expected {what} from {least:,} to {most:,}"
        )


def cores_of(path: str, own: Grid, whole_grid: Grid, sram: int) -> tuple[int, int, int]:
    """Return the rows and columns of the cores that work, and the bytes of each one's memory.

    A file has ``functional_workers``, names of cores such as ``1-2``, or ``grid`` with ``rows`` and
    ``columns``; and ``worker_l1_size``, or it alone.

    Args:
        own: rows and columns that work where the file names none.
        whole_grid: rows and columns of the chip, of which some may not work; no file has more.
        sram: bytes of a core's memory where the file says nothing.

    Raises:
        CompilerOptionError: it cannot be read, or has none of these keys, or a value out of range.
    """
    data = read_yaml(_DEVICE, path)

    def wrong(what: str) -> CompilerOptionError:
        return CompilerOptionError(f"{_DEVICE}={path!r}: {what}")

    if not data.keys() & {"functional_workers", "grid", "worker_l1_size"}:
        raise wrong(
            "expected functional_workers, a list of 'x-y'; grid, as in 'grid: {rows: 8, columns: 6}'; or "
            f"worker_l1_size, but it has {reprlib.repr(list(data))}"
        )
    found, (rows, columns) = own, whole_grid
    if "functional_workers" in data:
        found = _spanned(data["functional_workers"], wrong)
        if found[0] > rows or found[1] > columns:
            raise wrong(
                f"functional_workers are {found[0]} x {found[1]} cores, and the chip has {rows} x {columns}"
            )
    elif "grid" in data:
        grid = data["grid"]
        if not isinstance(grid, Mapping) or grid.keys() != {"rows", "columns"}:
            known = "rows and columns, as in 'grid: {rows: 8, columns: 6}'"
            raise wrong(f"grid is {reprlib.repr(grid)}; expected {known}")
        for name, most in (("rows", rows), ("columns", columns)):
            check_number(_DEVICE, path, f"grid: {name}", grid[name], 1, most)
        found = grid["rows"], grid["columns"]
    sram = data.get("worker_l1_size", sram)
    check_number(_DEVICE, path, "worker_l1_size", sram, *SRAM_RANGE)
    return *found, sram


def _spanned(workers: Any, wrong: Callable[[str], CompilerOptionError]) -> Grid:
    # Cores are named "x-y"; those of a column count.
    try:
        if not all(isinstance(name, str) for name in workers):
            raise TypeError
        places = [tuple(int(part) for part in name.split("-")) for name in workers]
        spanned = len({y for _, y in places}), len({x for x, _ in places})
    except (TypeError, ValueError):
        spanned = (0, 0)
    if 0 in spanned:
        raise wrong(f"functional_workers is {reprlib.repr(workers)}; expected a list of names such as '1-2'")
    return spanned


def num_chips_of(path: str) -> int:
    """Return how many chips a cluster's descriptor has.

    Raises:
        CompilerOptionError: it cannot be read, or has none, or more than :data:`MAX_CHIPS`.
    """
    chips = read_yaml(_CLUSTER, path).get("chips")
    if not isinstance(chips, list | dict) or not 1 <= len(chips) <= MAX_CHIPS:
        raise CompilerOptionError(
            f"{_CLUSTER}={path!r}: expected the key 'chips' with 1 to {MAX_CHIPS} of them"
        )
    return len(chips)
