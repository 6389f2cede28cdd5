"""PyBuda's compiler configuration: one object for the program, and the functions that change it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from torch_loom.compiler.choices import HARVESTABLE_ROWS
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.config.keywords import names_near_keywords
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.compiler_config import (
    CompilerConfig,
    Core,
    Direction,
    Grid,
    OpNames,
)
from torch_loom.pybuda.declared import tell_anew
from torch_loom.pybuda.enums import (
    CompileDepth,
    DRAMPlacementAlgorithm,
    NodeEpochType,
    PerfTraceLevel,
    TTIDumpFormat,
)
from torch_loom.pybuda.formats import DataFormat, MathFidelity
from torch_loom.pybuda.query import name_regex
from torch_loom.pybuda.wanted import Count, Index, OneOf, checks_arguments, read

__all__ = [
    "CompileDepth",
    "CompilerConfig",
    "PerfTraceLevel",
    "TTIDumpFormat",
    "_clear_global_compiler_config",
    "_get_global_compiler_config",
    "_internal_insert_fj_buffering_nop",
    "_set_global_compiler_config",
    "add_cpu_fallback_ops",
    "add_schedule_constraint",
    "configure_mixed_precision",
    "insert_buffering_nop",
    "insert_fracture_group",
    "insert_nop",
    "override_dram_parameters",
    "override_dram_queue_placement",
    "override_input_buffer_multiplier",
    "override_multi_op_fracture_factor",
    "override_op_placement",
    "override_op_size",
    "override_t_stream_dir",
    "override_t_stream_shape",
    "override_u_kt",
    "remove_cpu_fallback_ops",
    "set_auto_transposing_placement",
    "set_chip_break",
    "set_configuration_options",
    "set_epoch_break",
    "set_num_repeated_patterns",
    "supported_backend_configurations",
]

supported_backend_configurations = tuple(DEVICE_CONFIGS)
_Row = Annotated[int, OneOf(HARVESTABLE_ROWS)]
_Rows = Annotated[
    list[_Row] | list[list[_Row]],
    "a list of rows, or of such lists for each chip, [[1, 7], []]: rows 1 to 5 and 7 to 11",
]
_OperandFormat = tuple[DataFormat, bool]
_Narrowed = Annotated[tuple[Index, Annotated[int, OneOf((2, 4, 8))]], "(index, bits), which are 2, 4 or 8"]


class _Global:
    config = CompilerConfig()


def _get_global_compiler_config() -> CompilerConfig:
    """Return the configuration that compilations use; changes to it count for the next compilation."""
    return _Global.config


def _set_global_compiler_config(config: CompilerConfig) -> None:
    """Replace the configuration."""
    _Global.config = config


def _clear_global_compiler_config() -> None:
    """Go back to the defaults."""
    tell_anew()
    _Global.config = CompilerConfig()


reset_configuration = _clear_global_compiler_config


@contextlib.contextmanager
def used_configuration(config: CompilerConfig) -> Iterator[CompilerConfig]:
    """Within, this is the global configuration."""
    before, _Global.config = _Global.config, config
    try:
        yield config
    finally:
        _Global.config = before


@names_near_keywords
def set_configuration_options(
    enable_recompute: bool | None = None,
    balancer_policy: str | None = None,
    place_on_one_row: bool | None = None,
    enable_t_streaming: bool | None = None,
    manual_t_streaming: bool | None = None,
    enable_consteval: bool | None = None,
    default_df_override: DataFormat | None = None,
    accumulate_df: DataFormat | None = None,
    math_fidelity: MathFidelity | None = None,
    performance_trace: PerfTraceLevel | None = None,
    backend_opt_level: int | None = None,
    backend_output_dir: str | None = None,
    backend_device_descriptor_path: str | None = None,
    backend_cluster_descriptor_path: str | None = None,
    backend_runtime_params_path: str | None = None,
    backend_runtime_args: str | None = None,
    enable_auto_fusing: bool | None = None,
    enable_conv_prestride: bool | None = None,
    enable_stable_softmax: bool | None = None,
    amp_level: int | None = None,
    harvested_rows: list[list[int]] | list[int] | None = None,
    store_backend_db_to_yaml: bool | None = None,
    input_queues_on_host: bool | None = None,
    output_queues_on_host: bool | None = None,
    enable_auto_transposing_placement: bool | None = None,
    use_interactive_placer: bool | None = None,
    op_intermediates_to_save: list[str] | None = None,
    enable_enumerate_u_kt: bool | None = None,
    enable_device_tilize: bool | None = None,
    dram_placement_algorithm: DRAMPlacementAlgorithm | None = None,
    chip_placement_policy: str | None = None,
    enable_forked_dram_inputs: bool | None = None,
    device_config: str | None = None,
) -> None:
    """Set options of the global configuration; None leaves one as it is. Names are taken in any case.

    ``harvested_rows`` are those of each chip, or a list of rows that all chips lack.

    Raises:
        PyBudaError: a value outside of what an option takes; nothing is set then.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    rows = given.pop("harvested_rows", None)
    if rows is not None:
        rows = read("harvested_rows", rows, _Rows)
        is_of_all = all(isinstance(row, int) for row in rows)
        given["harvesting_mask"] = _mask(rows) if is_of_all else [_mask(chip) for chip in rows]
    names = {"accumulate_df": "default_accumulate_df", "math_fidelity": "default_math_fidelity"}
    checked = {
        names.get(name, name): CompilerConfig.checked(names.get(name, name), value, name)
        for name, value in given.items()
    }
    for name, value in checked.items():
        setattr(_Global.config, name, value)


def _mask(rows: list[int]) -> int:
    return sum(1 << row for row in set(rows))


def set_epoch_break(op_names: OpNames) -> None:
    """Start a new placement epoch at an op, several ops, or those that a predicate chooses."""
    _Global.config.place_on_new_epoch(op_names)


def set_chip_break(op_names: OpNames) -> None:
    """Go on on the next chip from an op, several ops, or those that a predicate chooses."""
    _Global.config.place_on_new_chip(op_names)


@checks_arguments
def override_op_size(op_name: str, grid_size: Grid) -> None:
    """Give an op a grid of (rows, columns) of cores.

    Raises:
        PyBudaError: no two positive numbers.
    """
    _Global.config.balancer_op_override(op_name, "grid_shape", grid_size)


@checks_arguments
def override_dram_parameters(op_name: str, force_dram_parameters: bool) -> None:
    """Keep an op's parameters in the chip's memory (True) or in its cores (False)."""
    _Global.config.balancer_op_override(op_name, "force_dram_parameters", force_dram_parameters)


@checks_arguments
def override_t_stream_dir(op_name: str, direction: Direction) -> None:
    """Stream an op along ``n`` (not at all), ``r``, ``c``, ``rz`` or ``cz``.

    Raises:
        PyBudaError: another direction.
    """
    _Global.config.balancer_op_override(op_name, "t_stream_dir", direction)


@checks_arguments
def override_t_stream_shape(op_name: str, shape: Grid) -> None:
    """Stream an op in (rows, columns) pieces."""
    _Global.config.balancer_op_override(op_name, "t_stream_shape", shape)


@checks_arguments
def override_u_kt(op_name: str, u_kt: Count) -> None:
    """Set the inner block of a matmul, in tiles."""
    _Global.config.balancer_op_override(op_name, "u_kt", u_kt)


@checks_arguments
def override_input_buffer_multiplier(op_name: str, operand_index: Index, *, multiplier: Count) -> None:
    """Set how many times an operand's buffer is held."""
    _Global.config.balancer_op_override(op_name, f"input_buffer_multiplier_{operand_index}", multiplier)


@checks_arguments
def override_multi_op_fracture_factor(op_name: str, multi_op_fracture_factor: Count) -> None:
    """Split a convolution into this many ops."""
    _Global.config.balancer_op_override(op_name, "fracture_factor", multi_op_fracture_factor)


@checks_arguments
def override_op_placement(
    op_name: str,
    *,
    start: Core | None = None,
    transpose_op: bool = False,
    chip_id: Index | None = None,
    spatial_epoch_break: bool = False,
    temporal_epoch_break: bool = False,
) -> None:
    """Place an op: at a core (row, column), turned, on a chip, at the start of an epoch.

    Args:
        spatial_epoch_break: it begins on the next chip, or with ``use_interactive_placer=False`` an epoch.
        temporal_epoch_break: it begins an epoch.

    Raises:
        PyBudaError: an argument of another type or out of range.
    """
    config = _Global.config
    for name, value in {"start": start, "transpose_op": transpose_op, "chip_id": chip_id}.items():
        if value is not None and value is not False:
            config.balancer_op_override(op_name, name, value)
    if temporal_epoch_break:
        config.place_on_new_epoch(op_name)
    if spatial_epoch_break:
        place = config.place_on_new_chip if config.use_interactive_placer else config.place_on_new_epoch
        place(op_name)


@checks_arguments
def override_dram_queue_placement(
    queue_name: str, *, chip_id: Index | None = None, channel: Index | None = None
) -> None:
    """Place a queue in the memory of a chip, in a channel of it."""
    _Global.config.place_queue_to_chip_dram(queue_name, chip_id=chip_id, channel=channel)


@checks_arguments
def insert_nop(
    src_op: str,
    dest_ops: str | list[str],
    *,
    hoist_tms: bool = True,
    nop_count: Count = 1,
    daisy_chain: bool = False,
) -> None:
    """Put ``nop_count`` copying ops between an op and its users; the first is ``buffer_0_<src>_<dest>``.

    Raises:
        PyBudaError: no user, or an argument of another type or out of range.
    """
    users = [dest_ops] if isinstance(dest_ops, str) else list(dest_ops)
    if not users:
        raise PyBudaError("insert_nop: dest_ops is []; it is the name of an op or several")
    CompilerConfig.warn_without_effect("buffering_nops_to_insert")
    _Global.config.buffering_nops_to_insert.append(
        {
            "src_op": src_op,
            "dest_ops": users,
            "hoist_tms": hoist_tms,
            "nop_count": nop_count,
            "daisy_chain": daisy_chain,
            "names": [f"buffer_{number}_{src_op}_{users[0]}" for number in range(nop_count)],
        }
    )


def insert_buffering_nop(
    src_op: str,
    dest_ops: str | list[str],
    *,
    hoist_tms: bool = True,
    nop_count: Count = 1,
    daisy_chain: bool = False,
) -> None:
    """The former name of insert_nop."""
    insert_nop(src_op, dest_ops, hoist_tms=hoist_tms, nop_count=nop_count, daisy_chain=daisy_chain)


def _internal_insert_fj_buffering_nop(src_op: str, dest_ops: str | list[str], **options: Any) -> None:
    """Insert a copying op that balances a fork, as insert_nop."""
    insert_nop(src_op, dest_ops, **options)


def insert_fracture_group(nodes: list[Any], chip_ids: list[int] | dict[str, list[int]] | None = None) -> None:
    """Split these ops together, over these chips."""
    CompilerConfig.warn_without_effect("fracture_groups")
    _Global.config.fracture_groups.append((list(nodes), chip_ids))


@checks_arguments
def add_schedule_constraint(partial_ordering: list[str]) -> None:
    """Run these ops in this order."""
    CompilerConfig.warn_without_effect("scheduler_constraints")
    _Global.config.scheduler_constraints.append(list(partial_ordering))


@checks_arguments
def set_auto_transposing_placement(op_name: str | bool = True, enable: bool | None = None) -> None:
    """Let the placer turn ops: all of them (True, False), or one."""
    if isinstance(op_name, bool):
        _Global.config.enable_auto_transposing_placement = op_name
    else:
        _Global.config.balancer_op_override(op_name, "transpose_op", True if enable is None else enable)


@checks_arguments
def set_num_repeated_patterns(num_patterns: int) -> None:
    """Say how many repeating blocks the model has."""
    _Global.config.match_subgraph_patterns = num_patterns


@checks_arguments
def add_cpu_fallback_ops(op_types: str | list[str]) -> None:
    """Run ops of these types on the host."""
    _Global.config.cpu_fallback_ops |= {op_types} if isinstance(op_types, str) else set(op_types)


@checks_arguments
def remove_cpu_fallback_ops(op_types: str | list[str]) -> None:
    """Run ops of these types on the device."""
    _Global.config.cpu_fallback_ops -= {op_types} if isinstance(op_types, str) else set(op_types)


@checks_arguments
def configure_mixed_precision(
    *,
    op_type: str | None = None,
    epoch_type: NodeEpochType | None = None,
    output_df: DataFormat | None = None,
    intermediate_df: DataFormat | None = None,
    accumulate_df: DataFormat | None = None,
    math_fidelity: MathFidelity | None = None,
    name_regex: str | Callable[..., Any] | None = None,
    input_df: dict[Index, _OperandFormat] | list[_OperandFormat] | DataFormat | None = None,
    is_gradient_op: bool | None = None,
    input_parameter_indices_to_optimize: list[_Narrowed] | None = None,
) -> None:
    """Set formats and fidelity of ops: of a type, an epoch type, of gradients, or by their whole name.

    Args:
        input_df: by operand a format, and whether activations have it too; or the format of all operands.
        input_parameter_indices_to_optimize: of operands that are parameters, how many bits a value has.

    Raises:
        PyBudaError: nothing chooses the ops, the pattern is no regular expression, or a value is of another
            type.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    choosers = ("op_type", "epoch_type", "name_regex", "is_gradient_op")
    if not any(name in given for name in choosers):
        raise PyBudaError(f"configure_mixed_precision needs one of {', '.join(choosers)} to choose ops")
    if isinstance(name_regex, str):
        _checked_regex(name_regex)
    if math_fidelity is MathFidelity.Invalid:
        known = ", ".join(each.name for each in MathFidelity if each is not MathFidelity.Invalid)
        raise PyBudaError(
            f"configure_mixed_precision: math_fidelity is {math_fidelity}; it is one of {known}"
        )
    _Global.config.amp_properties.append(given)


def _checked_regex(pattern: str) -> None:
    try:
        name_regex(pattern)
    except re.error as error:
        raise PyBudaError(f"name_regex {pattern!r} is no regular expression: {error}") from error
