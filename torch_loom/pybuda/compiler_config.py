"""PyBuda's compiler configuration: what it holds, with PyBuda's defaults."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.declared import Declared, does, names_near, refused, warn_once, warns
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


_BY_PLAN = "the plan chooses"
_TVM = "modules are exported by PyTorch; there is no TVM"


@names_near
@dataclass
class CompilerConfig(Declared):
    """What the compiler and the pipeline do; names and defaults are PyBuda's.

    Raises:
        PyBudaError: a name is set that does not exist or is refused, or a value is none that it takes.
    """

    enable_training: bool = does("pybuda_compile verifies gradients too", False)
    enable_recompute: bool = does("training keeps the inputs of micro-batches alone", False)
    match_subgraph_patterns: int | None = warns("nothing is compacted by patterns", None)
    balancer_policy: Policy = does("grids of ops", "default")
    scheduler_policy: Order = warns("ops keep the order of the program", SchedulerPolicy.ModuleInputsBFS.name)
    place_on_one_row: bool = does("grids have one row", False)
    enable_t_streaming: bool = does("ops that do not fit are cut in time", True)
    manual_t_streaming: bool = does("ops are cut in time where override_t_stream_dir says so", False)
    enable_consteval: bool = does("what depends on parameters alone is computed once", True)
    enable_auto_fusing: bool = does("small ops run in the kernel of the op before", True)
    compile_subgraphs: bool = does("each module has inputs of its own, and runs when it is chosen", False)
    graph_solver_self_cut_type: Cuts = warns(f"{_BY_PLAN} grids without cuts", "FastCut")
    use_interactive_placer: bool = does("a placement that failed is tried with smaller grids", True)
    enable_enumerate_u_kt: bool = warns("inner blocks are the cost model's", True)
    enable_link_past_cache_ios: bool = warns("keys and values are the program's own inputs", False)
    enable_auto_transposing_placement: bool = does("a grid that fits only so is turned", False)
    enable_forked_dram_inputs: bool = does("an input of several ops is read from DRAM once", False)
    compile_depth: CompileDepth = does("pybuda_compile plans only from BALANCER_PASS on", CompileDepth.FULL)
    enable_tvm_cpu_fallback: bool = does("cpu_fallback_ops are kept on the host", True)
    cpu_fallback_ops: set[str] = does(
        "ops that the host computes; embeddings are the same on both", {"embedding"}
    )
    enable_tm_cpu_fallback: bool = warns("views run where their data is", False)
    tm_cpu_fallback_max_depth: int = warns("views run where their data is", 10)
    enable_tvm_dropout: bool = warns(_TVM, False)
    enable_tvm_unsupported_ops: bool = warns(_TVM, False)
    enable_op_level_comparision: bool = warns("VerifyConfig(verify_all=True) compares after each pass", False)
    enable_tvm_constant_prop: bool = warns(_TVM, False)
    convert_framework_params_to_tvm: bool = warns(_TVM, True)
    enable_xla_jax_convert: bool = warns("there are no JAX modules", False)
    enable_tvm_jax_freeze_large_model: bool = warns("there are no JAX modules", True)
    framework_model_output_names: list[str] = warns(_TVM, [])
    tvm_constnat_prop_mask: set[str] = warns(_TVM, set())
    compile_tvm_to_python: bool = warns(_TVM, True)
    retain_tvm_python_files: bool = warns(_TVM, False)
    tvm_graph_store_path: str = refused("TTDevice.compile_to_image writes what was compiled", "")
    tvm_graph_load_path: str = refused("TTDevice.load_image reads what was compiled", "")
    tvm_module_to_num_patterns: dict[str, int] = warns(_TVM, {})
    enable_conv_prestride: bool = does("the host gathers what a strided first convolution reads", True)
    max_pool_add_sub_surround: bool = warns("pooling is one op", False)
    max_pool_add_sub_surround_value: float = warns("pooling is one op", 1.0)
    enable_device_tilize: bool = does("an op on the chip makes tiles of inputs", False)
    chip_placement_policy: ChipOrder = does(
        "the order in which chips are filled", ChipPlacementPolicy.MMIO_LAST.name
    )
    default_dram_parameters: bool | None = warns(f"{_BY_PLAN} where parameters lie", None)
    default_df_override: DataFormat | None = does("the format of every float", None)
    default_accumulate_df: DataFormat | None = does("the format of sums", None)
    enable_broadcast_splitting: bool = warns("broadcasts are no edges of their own", False)
    default_math_fidelity: MathFidelity = does("passes of a product", MathFidelity.HiFi3)
    performance_trace: PerfTraceLevel | None = does("a trace of the predicted run is written", None)
    amp_level: AmpLevel | None = does("1: the optimizer's ops in Float32; 2: block floats too", None)
    harvesting_mask: list[Index] | Index = does("rows of the grid that are not used", [])
    conv_multi_op_fracture_factor_override: dict[str, int] = warns("convolutions are not split", {})
    enable_stable_softmax: bool = does("softmax subtracts the maximum first", True)
    enable_single_buffer_fallback: bool = warns(f"{_BY_PLAN} how buffers are held", False)
    device_mode: DeviceMode = refused("TTDevice(device_mode=…) says it", DeviceMode.CompileAndRun)
    backend_opt_level: Annotated[int, From(0, 4)] = does("what is replayed, shared and fused", 4)
    backend_output_dir: PathName = does("where netlists and traces are written", "")
    backend_device_descriptor_path: PathName = does("YAML of a chip's cores: grid: {rows: 8, columns: 6}", "")
    backend_cluster_descriptor_path: PathName = does("YAML that lists chips and links", "")
    backend_runtime_params_path: PathName = does("YAML of runtime parameters", "")
    backend_runtime_args: str = warns("there is no vendor's runtime that takes them", "")
    store_backend_db_to_yaml: bool = does("runtime parameters are written", False)
    device_config: Board = does("the board: its chips and their number", "")
    input_queues_on_host: bool = does("where inputs wait", True)
    output_queues_on_host: bool = does("where outputs wait", True)
    input_queue_entries: Count = does("how many inputs wait", 1024)
    show_progress: bool = does("a line on stderr says how far a run is", False)
    loopback_outputs: dict[str, int] = refused("push what a run returned as the next input", {})
    op_intermediates_to_save: list[str] = does("values of these ops go to get_intermediates_queue", [])
    dram_placement_algorithm: DRAMPlacementAlgorithm = does(
        "which DRAM channel a queue lies in", DRAMPlacementAlgorithm.ROUND_ROBIN
    )
    tti_dump_format: TTIDumpFormat = warns("images are of one format", TTIDumpFormat.DEFAULT)
    op_names_to_epoch_break: list[Any] = does("ops that begin an epoch", [])
    op_names_to_chip_break: list[Any] = does("ops that begin on the next chip", [])
    op_names_dont_fuse: list[str] = warns("fusing is on or off for all ops (enable_auto_fusing)", [])
    op_names_manual_fuse: list[list[str]] = warns("fusing is on or off for all ops (enable_auto_fusing)", [])
    balancer_op_overrides: dict[str, dict[str, Any]] = does("grids, places and slices of single ops", {})
    dram_queue_placements: dict[str, dict[str, Any]] = does("chip and channel of single queues", {})
    buffering_nops_to_insert: list[dict[str, Any]] = warns("queues between ops are sized by the plan", [])
    fracture_groups: list[Any] = warns("ops are cut by their grids alone", [])
    scheduler_constraints: list[list[str]] = warns("ops keep the order of the program", [])
    insert_queues: list[Any] = warns("queues between ops are sized by the plan", [])
    paddings: dict[str, bool] = warns("operands are padded to tiles where they need it", {})
    amp_properties: list[dict[str, Any]] = does("formats and fidelity of single ops", [])

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
        self.warn_without_effect("op_names_dont_fuse")
        self.op_names_dont_fuse.append(op_name)

    def manual_fuse(self, op_names: Iterable[str]) -> None:
        """Fuse these ops into one; warns, since fusing is on or off for all ops."""
        self.warn_without_effect("op_names_manual_fuse")
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
    warn_once(known, _CHOICES[known].warns)
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
