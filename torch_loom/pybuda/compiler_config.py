"""PyBuda's compiler configuration: what it holds, with PyBuda's defaults."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.enums import (
    ChipPlacementPolicy,
    CompileDepth,
    DRAMPlacementAlgorithm,
    GraphSolverSelfCutType,
    PerfTraceLevel,
    SchedulerPolicy,
    TTIDumpFormat,
)
from torch_loom.pybuda.formats import DataFormat, MathFidelity
from torch_loom.pybuda.query import NodePredicateBuilder

OpNames = str | NodePredicateBuilder | list[str | NodePredicateBuilder]


@dataclass
class CompilerConfig:
    """What the compiler and the pipeline do; defaults are PyBuda's."""

    enable_training: bool = False
    enable_recompute: bool = False
    match_subgraph_patterns: int | None = None
    balancer_policy: str = "default"
    scheduler_policy: str = SchedulerPolicy.ModuleInputsBFS.name
    place_on_one_row: bool = False
    enable_t_streaming: bool = True
    manual_t_streaming: bool = False
    enable_consteval: bool = True
    enable_auto_fusing: bool = True
    compile_subgraphs: bool = False
    graph_solver_self_cut_type: str = GraphSolverSelfCutType.FastCut.name
    use_interactive_placer: bool = True
    enable_enumerate_u_kt: bool = True
    enable_auto_transposing_placement: bool = False
    enable_forked_dram_inputs: bool = False
    compile_depth: CompileDepth = CompileDepth.FULL
    enable_tvm_cpu_fallback: bool = True
    cpu_fallback_ops: set[str] = field(default_factory=lambda: {"embedding"})
    enable_tm_cpu_fallback: bool = False
    tm_cpu_fallback_max_depth: int = 10
    enable_conv_prestride: bool = True
    enable_device_tilize: bool = False
    chip_placement_policy: str = ChipPlacementPolicy.MMIO_LAST.name
    default_dram_parameters: bool | None = None
    default_df_override: DataFormat | None = None
    default_accumulate_df: DataFormat | None = None
    default_math_fidelity: MathFidelity = MathFidelity.HiFi3
    performance_trace: PerfTraceLevel | None = None
    amp_level: int | None = None
    harvesting_mask: list[int] = field(default_factory=list)
    enable_stable_softmax: bool = True
    backend_opt_level: int = 4
    backend_output_dir: str = ""
    backend_device_descriptor_path: str = ""
    backend_cluster_descriptor_path: str = ""
    backend_runtime_params_path: str = ""
    backend_runtime_args: str = ""
    store_backend_db_to_yaml: bool = False
    device_config: str = ""
    input_queues_on_host: bool = True
    output_queues_on_host: bool = True
    input_queue_entries: int = 1024
    show_progress: bool = False
    loopback_outputs: dict[str, int] = field(default_factory=dict)
    op_intermediates_to_save: list[str] = field(default_factory=list)
    dram_placement_algorithm: DRAMPlacementAlgorithm = DRAMPlacementAlgorithm.ROUND_ROBIN
    tti_dump_format: TTIDumpFormat = TTIDumpFormat.DEFAULT
    op_names_to_epoch_break: list[Any] = field(default_factory=list)
    op_names_to_chip_break: list[Any] = field(default_factory=list)
    op_names_dont_fuse: list[str] = field(default_factory=list)
    op_names_manual_fuse: list[list[str]] = field(default_factory=list)
    balancer_op_overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    dram_queue_placements: dict[str, dict[str, Any]] = field(default_factory=dict)
    buffering_nops_to_insert: list[dict[str, Any]] = field(default_factory=list)
    fracture_groups: list[Any] = field(default_factory=list)
    scheduler_constraints: list[list[str]] = field(default_factory=list)
    amp_properties: list[dict[str, Any]] = field(default_factory=list)

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
        """Leave this op out of fusing."""
        self.op_names_dont_fuse.append(op_name)

    def manual_fuse(self, op_names: Iterable[str]) -> None:
        """Fuse these ops into one."""
        self.op_names_manual_fuse.append(list(op_names))

    def balancer_op_override(self, op_name: str, attribute: str, value: Any) -> None:
        """Set one of the balancer's choices for an op."""
        self.balancer_op_overrides.setdefault(op_name, {})[attribute] = value

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
