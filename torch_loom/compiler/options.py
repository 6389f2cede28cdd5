"""The compiler's configuration: the options of ``set_configuration_options``, checked where they are set."""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from torch_loom.compiler.choices import (
    BALANCER_POLICIES,
    CHIP_PLACEMENT_POLICIES,
    DATA_FORMATS,
    DRAM_PLACEMENT_ALGORITHMS,
    HARVESTABLE_ROWS,
    MATH_FIDELITIES,
    TRACE_LEVELS,
)
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import CompilerOptionError

Check = Callable[[Any], Any]

REFUSED = {
    "backend_runtime_args": "there is no vendor runtime that would take its arguments",
    "enable_enumerate_u_kt": "inner blocks of a matrix product are the cost model's, not enumerated",
}
"""Options that are refused, and why."""


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def _name(value: Any) -> Any:
    return value.name if isinstance(value, enum.Enum) else value


def _one_of(names: tuple[str, ...]) -> Check:
    by_key = {name.lower(): name for name in names}

    def check(value: Any) -> str:
        given = _name(value)
        if not isinstance(given, str) or given.lower() not in by_key:
            near = difflib.get_close_matches(str(given).lower(), by_key, 1)
            meant = f" (do you mean {by_key[near[0]]}?)" if near else ""
            raise ValueError(f"one of {', '.join(names)}, in any case{meant}")
        return by_key[given.lower()]

    return check


def _level(low: int, high: int, aliases: dict[int, int] | None = None) -> Check:
    most = max((high, *(aliases or ())))

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
            raise ValueError(f"an integer, {low} to {most}")
        return (aliases or {}).get(value, value)

    return check


def _path(value: Any) -> str:
    import os

    try:
        return str(os.fspath(value))
    except TypeError:
        raise ValueError("a path") from None


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError("a list of names of ops")
    return tuple(value)


def _rows(value: Any) -> tuple[tuple[int, ...], ...]:
    try:
        chips = tuple(tuple(chip) for chip in value)
    except TypeError:
        raise ValueError("a list of rows for each chip: [[1, 7]]") from None
    for row in (row for chip in chips for row in chip):
        if type(row) is not int or row not in HARVESTABLE_ROWS:
            raise ValueError(f"rows 1 to 5 and 7 to 11 (got {row}), a list for each chip")
    return chips


def _option(check: Check, effect: str, default: Any) -> Any:
    return field(default=default, metadata={"check": check, "effect": effect})


@dataclass(frozen=True)
class Options:
    """The options, each with its default. ``effect`` of a field's metadata says what it changes."""

    enable_recompute: bool = _option(
        _flag, "training: activations are computed again in the backward pass, not kept", False
    )
    balancer_policy: str = _option(_one_of(BALANCER_POLICIES), "how many cores each op gets", "default")
    place_on_one_row: bool = _option(_flag, "grids have one row of cores", False)
    enable_t_streaming: bool = _option(_flag, "an op that does not fit is cut in slices in time", True)
    manual_t_streaming: bool = _option(_flag, "only where override_t_stream_dir says so", False)
    enable_consteval: bool = _option(_flag, "what depends on parameters alone is computed once", True)
    default_df_override: str | None = _option(
        _one_of(DATA_FORMATS), "the format of every float; None: that of its dtype", None
    )
    accumulate_df: str | None = _option(_one_of(DATA_FORMATS), "the format of sums", None)
    math_fidelity: str = _option(_one_of(MATH_FIDELITIES), "passes of a product", "HiFi3")
    performance_trace: str = _option(
        _one_of(TRACE_LEVELS), "a trace of the predicted run in backend_output_dir", "NONE"
    )
    backend_opt_level: int = _option(
        _level(0, 3, {4: 3}),
        "0: every run issues its ops; 1: replays a graph; 2: also buffers share memory; 3: also fuses more",
        3,
    )
    backend_output_dir: str = _option(_path, "where netlist, trace and dumps are written", "")
    backend_device_descriptor_path: str = _option(
        _path, "YAML of a chip's cores: grid: {rows: 8, columns: 6}", ""
    )
    backend_cluster_descriptor_path: str = _option(_path, "YAML that lists the chips and their links", "")
    backend_runtime_params_path: str = _option(_path, "YAML of runtime parameters, read or written", "")
    backend_runtime_args: str = _option(_path, "refused", "")
    enable_auto_fusing: bool = _option(_flag, "small ops run in their producer's kernel", True)
    enable_conv_prestride: bool = _option(
        _flag,
        "the host puts the pixels together that a strided first convolution reads; else the chip picks them",
        True,
    )
    enable_stable_softmax: bool = _option(
        _flag, "softmax subtracts the maximum first; without, numbers are not eager's", True
    )
    amp_level: int = _option(
        _level(0, 2),
        "1: optimizer ops in Float32, HiFi4; 2: also mixed block floats, of the family of the default format",
        0,
    )
    harvested_rows: tuple[tuple[int, ...], ...] = _option(_rows, "rows of the grid that are not used", ())
    store_backend_db_to_yaml: bool = _option(
        _flag, "parameters are written to backend_runtime_params_path; False: read from it", False
    )
    input_queues_on_host: bool = _option(_flag, "input queues lie in host memory, not in DRAM", True)
    output_queues_on_host: bool = _option(_flag, "output queues lie in host memory, not in DRAM", True)
    enable_auto_transposing_placement: bool = _option(_flag, "a grid is turned where it fits only so", True)
    use_interactive_placer: bool = _option(
        _flag, "a failed placement is tried again with smaller grids in the same epoch", True
    )
    op_intermediates_to_save: tuple[str, ...] = _option(
        _names, "ops whose results are kept after a run, in `Executable.intermediates`", ()
    )
    enable_enumerate_u_kt: bool = _option(_flag, "refused", True)
    enable_device_tilize: bool = _option(
        _flag, "an op on the chip makes tiles of inputs, not the host", False
    )
    dram_placement_algorithm: str = _option(
        _one_of(DRAM_PLACEMENT_ALGORITHMS), "which DRAM channel a queue lies in", "ROUND_ROBIN"
    )
    chip_placement_policy: str = _option(
        _one_of(CHIP_PLACEMENT_POLICIES), "in which order chips are filled", "MMIO_LAST"
    )
    enable_forked_dram_inputs: bool = _option(
        _flag, "an input with several readers is read from DRAM once and passed on", False
    )
    device_config: str = _option(_one_of(tuple(DEVICE_CONFIGS)), "the board: its chips and their number", "")
    # Not of PyBuda: torch.compile's and torch_loom.compile's own.
    numerics: str = _option(_one_of(("exact", "float", "formats")), "exact: the engine's kernels", "exact")
    host_ops: str = _option(_one_of(("host", "error")), "what happens to ops that the chip lacks", "host")

    @property
    def is_exact(self) -> bool:
        """Whether results are those of eager, bit for bit."""
        return self.numerics == "exact"

    def but(self, **changes: Any) -> Options:
        """Return these options with some changed; None leaves one as it is.

        Raises:
            CompilerOptionError: there is no such option, or its value is none that it takes.
        """
        checked = {name: _checked(name, value) for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **checked)


PYBUDA_OPTIONS = tuple(each.name for each in fields(Options))[:33]
"""The options of ``set_configuration_options``."""

_FIELDS = {each.name: each for each in fields(Options)}


def _checked(name: str, value: Any) -> Any:
    if name not in _FIELDS:
        near = difflib.get_close_matches(name, _FIELDS, 3)
        hint = f"do you mean {' or '.join(near)}? " if near else ""
        raise CompilerOptionError(
            f"{name} is no option of the compiler; {hint}The options are {', '.join(_FIELDS)}"
        )
    if name in REFUSED:
        raise CompilerOptionError(f"{name}={value!r} is refused: {REFUSED[name]}. Leave it out")
    try:
        return _FIELDS[name].metadata["check"](value)
    except ValueError as error:
        raise CompilerOptionError(f"{name}={value!r}: it takes {error}") from None


_current = Options()


def configuration() -> Options:
    """Return the options that hold for what is compiled next."""
    return _current


def set_configuration_options(**options: Any) -> None:
    """Set options for what is compiled next; an option that is None or left out keeps its earlier value.

    Raises:
        CompilerOptionError: there is no such option, it is refused, or its value is none that it takes.

    Example:
        >>> from torch_loom import compiler
        >>> compiler.set_configuration_options(balancer_policy="Ribbon", math_fidelity="HiFi2")
        >>> compiler.configuration().balancer_policy
        'Ribbon'
        >>> compiler.reset_configuration()
    """
    global _current
    policy = _name(options.get("balancer_policy"))
    if isinstance(policy, str) and policy.lower() == "cnn":
        import warnings

        warnings.warn('balancer_policy="CNN" is deprecated: take "Ribbon"', DeprecationWarning, stacklevel=2)
    _current = _current.but(**options)


def reset() -> None:
    """Set every option to its default."""
    global _current
    _current = Options()
