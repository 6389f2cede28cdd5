"""What a user decides about single ops: breaks, grids, places, slices, formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch_loom.compiler import options
from torch_loom.compiler.choices import DATA_FORMATS, MATH_FIDELITIES
from torch_loom.compiler.predicates import Named, Predicate, Selector, checked, name_regex, op_type
from torch_loom.errors import CompilerOptionError


@dataclass
class Overrides:
    """All that has been set since the last :func:`reset`.

    Attributes:
        hosts: types of ops that stay on the host, as ``type_of`` calls them.
        gradients: whether each result's gradient is of a format, too: its own, unless a rule names another.
        is_partial: they are of several graphs, so that one graph lacks ops that they name.
    """

    epoch_breaks: list[Any] = field(default_factory=list)
    chip_breaks: list[Any] = field(default_factory=list)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    turned: set[str] = field(default_factory=set)
    streams: dict[str, str] = field(default_factory=dict)
    queues: dict[str, tuple[int, int]] = field(default_factory=dict)
    precisions: list[tuple[Predicate, dict[str, Any]]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    type_of: Callable[[Named], str] = lambda op: op.kind
    gradients: bool = False
    is_partial: bool = False

    def of_ops(self, ops: Sequence[Named]) -> Overrides:
        """Return what is for these ops; everything unless ``is_partial``."""
        if not self.is_partial:
            return self
        names = {op.name for op in ops}

        def known(given: list[Any]) -> list[Any]:
            return [
                each for each in given if (each in names if isinstance(each, str) else any(map(each, ops)))
            ]

        return replace(
            self,
            epoch_breaks=known(self.epoch_breaks),
            chip_breaks=known(self.chip_breaks),
            sizes={name: each for name, each in self.sizes.items() if name in names},
            starts={name: each for name, each in self.starts.items() if name in names},
            streams={name: each for name, each in self.streams.items() if name in names},
        )


_current = Overrides()


def current() -> Overrides:
    """Return what holds for what is compiled next."""
    return _current


def reset() -> None:
    """Drop all breaks and overrides."""
    global _current
    _current = Overrides()


def reset_configuration() -> None:
    """Set every option to its default, and drop all breaks and overrides."""
    options.reset()
    reset()


@contextmanager
def applied(overrides: Overrides) -> Iterator[None]:
    """Within, these hold in place of what was set."""
    global _current
    before, _current = _current, overrides
    try:
        yield
    finally:
        _current = before


def set_epoch_break(op_names: Selector) -> None:
    """Begin a new epoch at an op, a predicate's ops, or a list of both."""
    _current.epoch_breaks += checked(op_names)


def set_chip_break(op_names: Selector) -> None:
    """Place an op, a predicate's ops, or a list of both, and what follows, on the next chip."""
    _current.chip_breaks += checked(op_names)


def override_op_size(op_name: str, grid_size: tuple[int, int]) -> None:
    """Give an op a grid of rows and columns of cores.

    Raises:
        CompilerOptionError: the grid is no pair of numbers from 1 on.
    """
    _current.sizes[op_name] = _pair("override_op_size", grid_size, 1)


def override_op_placement(
    op_name: str,
    *,
    start: tuple[int, int] | None = None,
    transpose_op: bool = False,
    temporal_epoch_break: bool = False,
    spatial_epoch_break: bool = False,
) -> None:
    """Place an op at a core, turn its grid, or begin an epoch with it.

    Args:
        start: row and column of its first core.
        spatial_epoch_break: it begins on the next chip, or with ``use_interactive_placer=False`` an epoch.

    Raises:
        CompilerOptionError: ``start`` is no pair of numbers from 0 on.
    """
    if start is not None:
        _current.starts[op_name] = _pair("override_op_placement", start, 0)
    if transpose_op:
        _current.turned.add(op_name)
    if temporal_epoch_break:
        _current.epoch_breaks.append(op_name)
    if spatial_epoch_break:
        begun = (
            _current.chip_breaks if options.configuration().use_interactive_placer else _current.epoch_breaks
        )
        begun.append(op_name)


def override_t_stream_dir(op_name: str, direction: str) -> None:
    """Cut an op in slices in time: ``"r"``, ``"c"``, ``"rz"``, ``"cz"``; ``"n"``: never.

    Raises:
        CompilerOptionError: another direction.
    """
    if direction not in ("n", "r", "c", "rz", "cz"):
        raise CompilerOptionError(f"override_t_stream_dir: {direction!r} is none of n, r, c, rz, cz")
    _current.streams[op_name] = direction


def override_dram_queue_placement(name: str, *, chip_id: int = 0, channel: int = 0) -> None:
    """Put a queue of the netlist into a channel of a chip."""
    _current.queues[name] = (chip_id, channel)


def configure_mixed_precision(
    *,
    name_regex: str | None = None,
    op_type: str | None = None,
    output_df: Any = None,
    accumulate_df: Any = None,
    math_fidelity: Any = None,
) -> None:
    """Set formats and fidelity of ops, by name or by type; rules that come later count.

    Raises:
        CompilerOptionError: neither a name nor a type is given, or a value is none that it takes.
    """
    if name_regex is None and op_type is None:
        raise CompilerOptionError(
            "configure_mixed_precision: give name_regex or op_type, which ops it is for"
        )
    rule = {}
    for key, value, allowed in (
        ("format", output_df, DATA_FORMATS),
        ("accumulate", accumulate_df, DATA_FORMATS),
        ("fidelity", math_fidelity, MATH_FIDELITIES),
    ):
        if value is not None:
            name = getattr(value, "name", value)
            if name not in allowed:
                raise CompilerOptionError(
                    f"configure_mixed_precision: {name!r} is none of {', '.join(allowed)}"
                )
            rule[key] = name
    _current.precisions.append((_both(name_regex, op_type), rule))


def _both(regex: str | None, kind: str | None) -> Predicate:
    parts = [name_regex(regex)] if regex is not None else []
    if kind is not None:
        parts.append(op_type(kind))
    return parts[0] if len(parts) == 1 else parts[0] & parts[1]


def _pair(what: str, value: Any, least: int) -> tuple[int, int]:
    try:
        rows, columns = value
        if isinstance(rows, bool) or int(rows) != rows or int(columns) != columns:
            raise ValueError
    except (TypeError, ValueError):
        raise CompilerOptionError(f"{what}: {value!r} is no pair of rows and columns") from None
    if rows < least or columns < least:
        raise CompilerOptionError(f"{what}: {value!r}: rows and columns from {least} on")
    return int(rows), int(columns)
