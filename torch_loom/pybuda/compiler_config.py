"""PyBuda's compiler configuration: what it holds, with PyBuda's defaults."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import os
import sys
import typing
import warnings
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, NamedTuple

from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.enums import (
    ChipPlacementPolicy,
    CompileDepth,
    DeviceMode,
    DRAMPlacementAlgorithm,
    GraphSolverSelfCutType,
    PerfTraceLevel,
    PolicyType,
    SchedulerPolicy,
    TTIDumpFormat,
)
from torch_loom.pybuda.formats import DataFormat, MathFidelity
from torch_loom.pybuda.query import NodePredicateBuilder
from torch_loom.pybuda.wanted import Count, From, Index, OneOf, read

OpNames = str | NodePredicateBuilder | list[str | NodePredicateBuilder]

# Types of settings and choices: what a value must be is declared in them alone.
PathName = Annotated[str | os.PathLike[str], "a path"]
Board = Annotated[str, OneOf(["", *DEVICE_CONFIGS])]
Policy = Annotated[str, OneOf(["default", *(policy.name for policy in PolicyType)])]
Cuts = Annotated[str, OneOf(cut.name for cut in GraphSolverSelfCutType)]
Order = Annotated[str, OneOf(policy.name for policy in SchedulerPolicy)]
ChipOrder = Annotated[str, OneOf(policy.name for policy in ChipPlacementPolicy)]
AmpLevel = Annotated[int, From(0, 2)]
Grid = Annotated[tuple[Count, Count], "(rows, columns), 1 or more each"]
Core = Annotated[tuple[Index, Index], "(row, column), 0 or more each"]
Direction = Annotated[str, OneOf(("n", "r", "c", "rz", "cz"))]


def _does(effect: str, default: Any, **more: Any) -> Any:
    """A setting, and what it changes."""
    mutable = isinstance(default, (list, dict, set))
    given = {"default_factory": lambda: type(default)(default)} if mutable else {"default": default}
    return field(**given, metadata={"effect": effect, **more})


def _warns(reason: str, default: Any) -> Any:
    """A setting without a counterpart here: it is kept, and setting it warns once."""
    return _does(f"warns: {reason}", default, warns=reason)


def _refused(reason: str, default: Any) -> Any:
    """A setting that programs would miss: setting it raises."""
    return _does(f"refused: {reason}", default, refused=reason)


_BY_PLAN = "the plan chooses"
_TVM = "modules are exported by PyTorch; there is no TVM"
_told: set[str] = set()


@dataclass
class CompilerConfig:
    """What the compiler and the pipeline do; names and defaults are PyBuda's.

    Raises:
        PyBudaError: a name is set that does not exist or is refused, or a value is none that it takes.
    """

    enable_training: bool = _does("pybuda_compile verifies gradients too", False)
    enable_recompute: bool = _does("training keeps the inputs of micro-batches alone", False)
    match_subgraph_patterns: int | None = _warns("nothing is compacted by patterns", None)
    balancer_policy: Policy = _does("grids of ops", "default")
    scheduler_policy: Order = _warns(
        "ops keep the order of the program", SchedulerPolicy.ModuleInputsBFS.name
    )
    place_on_one_row: bool = _does("grids have one row", False)
    enable_t_streaming: bool = _does("ops that do not fit are cut in time", True)
    manual_t_streaming: bool = _does("ops are cut in time where override_t_stream_dir says so", False)
    enable_consteval: bool = _does("what depends on parameters alone is computed once", True)
    enable_auto_fusing: bool = _does("small ops run in the kernel of the op before", True)
    compile_subgraphs: bool = _does("each module has inputs of its own, and runs when it is chosen", False)
    graph_solver_self_cut_type: Cuts = _warns(f"{_BY_PLAN} grids without cuts", "FastCut")
    use_interactive_placer: bool = _does("a placement that failed is tried with smaller grids", True)
    enable_enumerate_u_kt: bool = _warns("inner blocks are the cost model's", True)
    enable_link_past_cache_ios: bool = _warns("keys and values are the program's own inputs", False)
    enable_auto_transposing_placement: bool = _does("a grid that fits only so is turned", False)
    enable_forked_dram_inputs: bool = _does("an input of several ops is read from DRAM once", False)
    compile_depth: CompileDepth = _does("pybuda_compile plans only from BALANCER_PASS on", CompileDepth.FULL)
    enable_tvm_cpu_fallback: bool = _does("cpu_fallback_ops are kept on the host", True)
    cpu_fallback_ops: set[str] = _does(
        "ops that the host computes; embeddings are the same on both", {"embedding"}
    )
    enable_tm_cpu_fallback: bool = _warns("views run where their data is", False)
    tm_cpu_fallback_max_depth: int = _warns("views run where their data is", 10)
    enable_tvm_dropout: bool = _warns(_TVM, False)
    enable_tvm_unsupported_ops: bool = _warns(_TVM, False)
    enable_op_level_comparision: bool = _warns(
        "VerifyConfig(verify_all=True) compares after each pass", False
    )
    enable_tvm_constant_prop: bool = _warns(_TVM, False)
    convert_framework_params_to_tvm: bool = _warns(_TVM, True)
    enable_xla_jax_convert: bool = _warns("there are no JAX modules", False)
    enable_tvm_jax_freeze_large_model: bool = _warns("there are no JAX modules", True)
    framework_model_output_names: list[str] = _warns(_TVM, [])
    tvm_constnat_prop_mask: set[str] = _warns(_TVM, set())
    compile_tvm_to_python: bool = _warns(_TVM, True)
    retain_tvm_python_files: bool = _warns(_TVM, False)
    tvm_graph_store_path: str = _refused("TTDevice.compile_to_image writes what was compiled", "")
    tvm_graph_load_path: str = _refused("TTDevice.load_image reads what was compiled", "")
    tvm_module_to_num_patterns: dict[str, int] = _warns(_TVM, {})
    enable_conv_prestride: bool = _does("the host gathers what a strided first convolution reads", True)
    max_pool_add_sub_surround: bool = _warns("pooling is one op", False)
    max_pool_add_sub_surround_value: float = _warns("pooling is one op", 1.0)
    enable_device_tilize: bool = _does("an op on the chip makes tiles of inputs", False)
    chip_placement_policy: ChipOrder = _does(
        "the order in which chips are filled", ChipPlacementPolicy.MMIO_LAST.name
    )
    default_dram_parameters: bool | None = _warns(f"{_BY_PLAN} where parameters lie", None)
    default_df_override: DataFormat | None = _does("the format of every float", None)
    default_accumulate_df: DataFormat | None = _does("the format of sums", None)
    enable_broadcast_splitting: bool = _warns("broadcasts are no edges of their own", False)
    default_math_fidelity: MathFidelity = _does("passes of a product", MathFidelity.HiFi3)
    performance_trace: PerfTraceLevel | None = _does("a trace of the predicted run is written", None)
    amp_level: AmpLevel | None = _does("1: the optimizer's ops in Float32; 2: block floats too", None)
    harvesting_mask: list[Index] | Index = _does("rows of the grid that are not used", [])
    conv_multi_op_fracture_factor_override: dict[str, int] = _warns("convolutions are not split", {})
    enable_stable_softmax: bool = _does("softmax subtracts the maximum first", True)
    enable_single_buffer_fallback: bool = _warns(f"{_BY_PLAN} how buffers are held", False)
    device_mode: DeviceMode = _refused("TTDevice(device_mode=…) says it", DeviceMode.CompileAndRun)
    backend_opt_level: Annotated[int, From(0, 4)] = _does("what is replayed, shared and fused", 4)
    backend_output_dir: PathName = _does("where netlists and traces are written", "")
    backend_device_descriptor_path: PathName = _does("YAML that describes the chip's grid", "")
    backend_cluster_descriptor_path: PathName = _does("YAML that lists chips and links", "")
    backend_runtime_params_path: PathName = _does("YAML of runtime parameters", "")
    backend_runtime_args: str = _warns("there is no vendor's runtime that takes them", "")
    store_backend_db_to_yaml: bool = _does("runtime parameters are written", False)
    device_config: Board = _does("the board: its chips and their number", "")
    input_queues_on_host: bool = _does("where inputs wait", True)
    output_queues_on_host: bool = _does("where outputs wait", True)
    input_queue_entries: Count = _does("how many inputs wait", 1024)
    show_progress: bool = _does("a line on stderr says how far a run is", False)
    loopback_outputs: dict[str, int] = _refused("push what a run returned as the next input", {})
    op_intermediates_to_save: list[str] = _does("values of these ops go to get_intermediates_queue", [])
    dram_placement_algorithm: DRAMPlacementAlgorithm = _does(
        "which DRAM channel a queue lies in", DRAMPlacementAlgorithm.ROUND_ROBIN
    )
    tti_dump_format: TTIDumpFormat = _warns("images are of one format", TTIDumpFormat.DEFAULT)
    op_names_to_epoch_break: list[Any] = _does("ops that begin an epoch", [])
    op_names_to_chip_break: list[Any] = _does("ops that begin on the next chip", [])
    op_names_dont_fuse: list[str] = _warns("fusing is on or off for all ops (enable_auto_fusing)", [])
    op_names_manual_fuse: list[list[str]] = _warns("fusing is on or off for all ops (enable_auto_fusing)", [])
    balancer_op_overrides: dict[str, dict[str, Any]] = _does("grids, places and slices of single ops", {})
    dram_queue_placements: dict[str, dict[str, Any]] = _does("chip and channel of single queues", {})
    buffering_nops_to_insert: list[dict[str, Any]] = _warns("queues between ops are sized by the plan", [])
    fracture_groups: list[Any] = _warns("ops are cut by their grids alone", [])
    scheduler_constraints: list[list[str]] = _warns("ops keep the order of the program", [])
    insert_queues: list[Any] = _warns("queues between ops are sized by the plan", [])
    paddings: dict[str, bool] = _warns("operands are padded to tiles where they need it", {})
    amp_properties: list[dict[str, Any]] = _does("formats and fidelity of single ops", [])

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, self.checked(name, value))

    @classmethod
    def checked(cls, name: str, value: Any, called: str = "") -> Any:
        """Return a value as a setting keeps it; one without effect warns.

        Args:
            called: the setting's name for errors, where the program has another.

        Raises:
            PyBudaError: there is no such setting, it is refused, or it takes no such value.
        """
        known = {one.name: one for one in fields(cls)}
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise PyBudaError(f"CompilerConfig has no setting {name!r}: {hint}")
        one = known[name]
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if value != default and "refused" in one.metadata:
            raise PyBudaError(f"{name}={value!r} is refused: {one.metadata['refused']}")
        value = read(called or name, value, setting_types()[name])
        if value != default:
            warn_without_effect(name)
        return value

    def place_on_new_epoch(self, op_names: OpNames) -> None:
        """Start a placement epoch at these ops."""
        self.op_names_to_epoch_break.append(_listed(op_names))

    def place_on_new_chip(self, op_names: OpNames) -> None:
        """Start on the next chip at these ops."""
        self.op_names_to_chip_break.append(_listed(op_names))

    def place_queue_to_chip_dram(
        self, queue_name: str, *, chip_id: int | None = None, channel: int | None = None
    ) -> None:
        """Place a queue in the memory of a chip, in a channel of it."""
        self.dram_queue_placements[queue_name] = {"chip_id": chip_id, "channel": channel}

    def dont_fuse(self, op_name: str) -> None:
        """Leave this op out of fusing; warns, since fusing is on or off for all ops."""
        warn_without_effect("op_names_dont_fuse")
        self.op_names_dont_fuse.append(op_name)

    def manual_fuse(self, op_names: Iterable[str]) -> None:
        """Fuse these ops into one; warns, since fusing is on or off for all ops."""
        warn_without_effect("op_names_manual_fuse")
        self.op_names_manual_fuse.append(list(op_names))

    def balancer_op_override(self, op_name: str, attribute: str, value: Any) -> None:
        """Set one of the balancer's choices for an op; warns of one that changes nothing.

        Raises:
            PyBudaError: there is no such choice, or it takes no such value.
        """
        self.balancer_op_overrides.setdefault(op_name, {})[attribute] = _checked_choice(attribute, value)

    def enable_amp_light(self, level: int = 1) -> None:
        """Narrow the weights of matmuls: 1 to 8 bits (HiFi2), 2 to 4 bits (HiFi2), 3 to 4 bits (LoFi).

        Raises:
            PyBudaError: another level.
        """
        chosen = {
            1: (DataFormat.Bfp8_b, MathFidelity.HiFi2),
            2: (DataFormat.Bfp4_b, MathFidelity.HiFi2),
            3: (DataFormat.Bfp4_b, MathFidelity.LoFi),
        }
        if level not in chosen:
            raise PyBudaError(f"enable_amp_light: level is {level}; it is 1, 2 or 3")
        data_format, fidelity = chosen[level]
        self.amp_properties.append(
            {
                "op_type": "matmul",
                "math_fidelity": fidelity,
                "input_df": {1: (data_format, False), 2: (data_format, False)},
            }
        )

    def apply_env_config_overrides(self) -> None:
        """Does nothing: variables of PyBuda's environment are not read; use the functions of this module."""

    def to_json(self) -> str:
        """Return the configuration as JSON; enumerations are their names."""
        return json.dumps(dataclasses.asdict(self), default=_plain, indent=1)


@functools.cache
def setting_types() -> dict[str, Any]:
    """Return the declared type of each setting."""
    return typing.get_type_hints(CompilerConfig, include_extras=True)


class _Choice(NamedTuple):
    """What the balancer may be told of an op: what a value is, and why it has no effect, if it has none."""

    type: Any
    warns: str = ""


_CHOICES = {
    "grid_shape": _Choice(Grid),
    "start": _Choice(Core),
    "transpose_op": _Choice(bool),
    "t_stream_dir": _Choice(Direction),
    "chip_id": _Choice(Index, "chips are filled in order; set_chip_break begins the next"),
    "t_stream_shape": _Choice(Grid, "the cost model cuts ops into slices"),
    "u_kt": _Choice(Count, "inner blocks are the cost model's"),
    "input_buffer_multiplier": _Choice(Count, "the plan sizes buffers"),
    "fracture_factor": _Choice(Count, "convolutions are not split"),
    "force_dram_parameters": _Choice(bool, "the plan chooses where parameters lie"),
}
_OF_OPERANDS = "input_buffer_multiplier_"


def _checked_choice(attribute: str, value: Any) -> Any:
    """Return a value as a choice keeps it; a choice that changes nothing warns, once."""
    is_of_operand = attribute.startswith(_OF_OPERANDS) and attribute.removeprefix(_OF_OPERANDS).isdecimal()
    known = _OF_OPERANDS[:-1] if is_of_operand else attribute
    if known not in _CHOICES:
        raise PyBudaError(f"an op has no {attribute!r} to override; there are {', '.join(_CHOICES)}")
    value = read(attribute, value, _CHOICES[known].type)
    _warn_once(known, _CHOICES[known].warns)
    return value


class OpOverride(dict[str, Any]):
    """Choices for an op, as attributes: what ``balancer_op_overrides`` may hold beside dicts.

    Raises:
        PyBudaError: there is no such choice, or it takes no such value.
    """

    def __setattr__(self, attribute: str, value: Any) -> None:
        self[attribute] = _checked_choice(attribute, value)

    def __getattr__(self, attribute: str) -> Any:
        return self.get(attribute)


def warn_without_effect(name: str) -> None:
    """Warn, once for each name until the configuration is cleared, that a setting changes nothing."""
    _warn_once(name, {one.name: one for one in fields(CompilerConfig)}[name].metadata.get("warns", ""))


def _warn_once(name: str, reason: str) -> None:
    if reason and name not in _told:
        _told.add(name)
        warnings.warn(f"{name} has no effect: {reason}", stacklevel=_level_of_program())


def _level_of_program() -> int:
    """How far up the stack the line is, seen from the caller, that is not of torch_loom."""
    here, level = os.path.dirname(os.path.dirname(__file__)), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((here, "<")):  # < of dataclasses
        frame, level = frame.f_back, level + 1
    return level


def tell_anew() -> None:
    """Forget which settings were warned about."""
    _told.clear()


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    return getattr(value, "name", repr(value))


def _listed(op_names: OpNames) -> list[str | NodePredicateBuilder]:
    listed = list(op_names) if isinstance(op_names, (list, tuple)) else [op_names]
    for name in listed:
        if not isinstance(name, (str, NodePredicateBuilder)):
            raise PyBudaError(f"an op is named by a text or a predicate of pybuda.query, not {name!r}")
    return listed
