"""Place and route: a device's modules through the compiler, under the program's options and overrides."""

from __future__ import annotations

import difflib
import functools
import operator
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx.traceback import preserve_node_meta

from torch_loom import config as settings_of
from torch_loom.compiler import compile_module
from torch_loom.compiler.frontend import node_name
from torch_loom.compiler.overrides import Overrides, applied
from torch_loom.compiler.passes.formats import GRADIENT, INTERMEDIATE, OPERANDS
from torch_loom.compiler.predicates import Named, Predicate
from torch_loom.config import settings
from torch_loom.errors import PyBudaError
from torch_loom.image.executable import Executable
from torch_loom.ops import family_of
from torch_loom.pybuda import query
from torch_loom.pybuda.compiler_config import CompilerConfig
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.device import Device
from torch_loom.pybuda.enums import DeviceMode, PerfTraceLevel
from torch_loom.pybuda.execution.chip_device import ChipDevice
from torch_loom.pybuda.execution.tracing import InOrder
from torch_loom.pybuda.formats import DataFormat

OUTPUT_DIR = "tt_build"
"""Where files go if a performance trace is asked for and ``backend_output_dir`` is not set."""

# Fields of the configuration that are options of the compiler by the same name.
_SAME = (
    *("balancer_policy", "place_on_one_row", "enable_t_streaming", "manual_t_streaming", "enable_consteval"),
    *("backend_opt_level", "backend_device_descriptor_path", "backend_cluster_descriptor_path"),
    *("backend_runtime_params_path", "enable_auto_fusing", "enable_conv_prestride", "enable_stable_softmax"),
    *("amp_level", "store_backend_db_to_yaml", "input_queues_on_host", "output_queues_on_host"),
    *("enable_auto_transposing_placement", "use_interactive_placer", "enable_device_tilize"),
    *("enable_forked_dram_inputs", "chip_placement_policy", "device_config"),
)
_ATTRIBUTES = {"grid_shape": "sizes", "start": "starts", "t_stream_dir": "streams"}


def compiled(
    device: ChipDevice,
    inputs: Sequence[torch.Tensor],
    names: Sequence[str] = (),
    modules: Sequence[nn.Module] = (),
    training: bool = False,
    **more: Any,
) -> Executable:
    """Compile what a TTDevice runs for its chips, under the program's configuration.

    Args:
        inputs: of one micro-batch; shapes are enough where ``more`` does not ask for numbers.
        names: of the inputs, where they are given by name.
        modules: in place of copies of the placed ones; moved to the device, unless ``more`` has
            ``plans_later``. What changes in them there is seen.
        training: in the mode that the modules are in, with formats for gradients, nothing folded.
        more: options of :func:`torch_loom.compile` that come before the configuration's.

    Raises:
        LoomError: the compiler refuses the modules or the options.
        NotPlainError: with ``plans_later``, modules elsewhere that need an export.
    """
    config = _get_global_compiler_config()
    stage = device.make_stage()
    place = device.torch_device()
    parts = modules or device.reference_stage().chosen_modules()
    whole = InOrder(parts)
    if not more.get("plans_later"):
        whole.to(place)
    whole.training = training
    if not training:
        whole.eval()
    given = [
        torch.empty(value.shape, dtype=value.dtype, device=place) if value.is_meta else value.to(place)
        for value in inputs
    ]
    options, overrides = choices(device, len(stage.devices), training)
    options |= more
    if training:
        options["enable_consteval"] = False
    # The names of ops are no part of the cache's key: a plan has them, and these settings ask for them.
    asks_names = bool(overrides.precisions or overrides.hosts or config.op_intermediates_to_save)

    def made_of(module: nn.Module, **changes: Any) -> Executable:
        with applied(overrides), preserve_node_meta():
            found: Executable = compile_module(
                module,
                () if names else given,
                dict(zip(names, given, strict=True)) if names else None,
                chip=device.chip,
                num_chips=len(stage.devices),
                device=place,
                cache=bool(more.get("plans_later")) and not (training or asks_names),
                **{**options, **changes},
            )
        return found

    made = made_of(whole)
    if modules and device.emulates() and settings_of.value(settings.NUMERICS) == "silicon":
        # What runs: the sums of silicon are ops that the emulation puts among the modules' own, and the
        # compiler adds none. The plan is that of the modules alone.
        numbered = _Numbered(parts, device.chosen_numbers())
        numbered.training = training
        plan, made = made.plan, made_of(numbered, numerics="exact")
        made.plan.clear()
        made.plan.update(plan)
    if more.get("plans_later"):
        return made
    placed = list(stage.modules)
    made.plan["model"] = ", ".join(placed if stage.chosen is None else [placed[stage.chosen]])
    return made


class _Numbered(InOrder):
    """Modules in the numbers of their device."""

    def __init__(self, modules: Sequence[nn.Module], numbers: Callable[[], Any]) -> None:
        super().__init__(modules)
        self._numbers = numbers

    def forward(self, *values: torch.Tensor, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with self._numbers():
            return super().forward(*values, **named)


def choices(device: ChipDevice, num_chips: int, training: bool = False) -> tuple[dict[str, Any], Overrides]:
    """Return what the program's configuration chooses for a device: the compiler's options, and overrides."""
    config = _get_global_compiler_config()
    return {**_options(config, num_chips), **_numbers(device, config)}, _overrides(config, training)


def wants_files(config: CompilerConfig) -> bool:
    """Whether runs write netlists and traces."""
    return bool(config.backend_output_dir) or _trace(config) != "NONE"


def write_files(
    devices: Sequence[Device],
    inputs: Sequence[torch.Tensor],
    here: Sequence[bool],
    *,
    perf_trace: bool = False,
) -> None:
    """Compile each TTDevice of a pipeline and write its netlist and trace into a folder of its name.

    The plan is that of the forward, for inputs of these shapes. A device that runs an image is passed over.

    Args:
        inputs: of the first device.
        here: which devices this process runs.
        perf_trace: write a trace even if the configuration asks for none.

    Raises:
        PyBudaError: an override names an op that no device has.
        LoomError: the compiler refuses modules or options; the folder cannot be written.
    """
    config = _get_global_compiler_config()
    level = _trace(config)
    level = "LIGHT" if perf_trace and level == "NONE" else level
    folder = Path(config.backend_output_dir or OUTPUT_DIR)
    values = tuple(value.detach().to("meta") for value in inputs)
    known: set[str] = set()
    for place, (device, is_here) in enumerate(zip(devices, here, strict=True)):
        if isinstance(device, ChipDevice) and device.device_mode is DeviceMode.RunOnly:
            left = [other.name for other in devices[place + 1 :]]
            if left:
                warnings.warn(
                    f"no plan for {', '.join(left)}: shapes behind an image ({device.name}) are not known",
                    stacklevel=2,
                )
            break
        if is_here and isinstance(device, ChipDevice):
            executable = compiled(device, values)
            executable.write_outputs(folder / device.name, level)
            known.update(op["name"] for epoch in executable.plan["epochs"] for op in epoch["ops"])
        if place + 1 < len(devices):
            values = device.output_shapes(values)
    if all(here):
        _check_names(config, known)


def _trace(config: CompilerConfig) -> str:
    return (config.performance_trace or PerfTraceLevel.NONE).name


def _options(config: CompilerConfig, num_chips: int) -> dict[str, Any]:
    found = {name: getattr(config, name) for name in _SAME}
    found = {name: value for name, value in found.items() if value is not None and value != ""}
    found["dram_placement_algorithm"] = config.dram_placement_algorithm.name
    found["math_fidelity"] = config.default_math_fidelity.name
    if config.default_accumulate_df is not None:
        found["accumulate_df"] = config.default_accumulate_df.name
    if config.harvesting_mask:
        given = config.harvesting_mask
        masks = given if isinstance(given, list) else [given] * num_chips  # a number is every chip's
        found["harvested_rows"] = [
            [row for row in range(mask.bit_length()) if mask >> row & 1] for mask in masks
        ]
    return found


def _numbers(device: ChipDevice, config: CompilerConfig) -> dict[str, Any]:
    chosen = config.default_df_override or (device.fp32_fallback if device.emulates() else None)
    found = {"numerics": "formats" if device.emulates() else "exact"}
    return found if chosen is None else {**found, "default_df_override": chosen.name}


def _overrides(config: CompilerConfig, training: bool) -> Overrides:
    made = Overrides(is_partial=True, gradients=training)
    for breaks, given in (
        (made.epoch_breaks, config.op_names_to_epoch_break),
        (made.chip_breaks, config.op_names_to_chip_break),
    ):
        breaks += [
            node_name(each) if isinstance(each, str) else _predicate(each)
            for several in given
            for each in several
        ]
    for name, attributes in config.balancer_op_overrides.items():
        for attribute, value in attributes.items():
            if attribute in _ATTRIBUTES:
                getattr(made, _ATTRIBUTES[attribute])[node_name(name)] = value
            elif attribute == "transpose_op" and value:
                made.turned.add(node_name(name))
    made.hosts = config.cpu_fallback_ops - {"embedding"} if config.enable_tvm_cpu_fallback else set()
    made.type_of = _type_of
    made.queues = {
        name: (place["chip_id"] or 0, place["channel"] or 0)
        for name, place in config.dram_queue_placements.items()
    }
    is_b = (config.default_df_override or DataFormat.Float16_b).name.endswith(("_b", "32"))
    rules = [_precision(given, is_b) for given in config.amp_properties]
    made.precisions = [rule for rule in rules if rule is not None]
    return made


def _precision(given: dict[str, Any], is_b: bool) -> tuple[Predicate, dict[str, Any]] | None:
    """Return a rule of configure_mixed_precision as the compiler has it; None: it is for the optimizer.

    Of a backward only results have formats of their own: the gradients of the forward op that is meant.
    """
    epoch = "Backward" if given.get("is_gradient_op") else getattr(given.get("epoch_type"), "name", "Forward")
    if epoch == "Optimizer":
        return None
    keys = {"output_df": GRADIENT}
    if epoch == "Forward":
        keys = {"intermediate_df": INTERMEDIATE, "accumulate_df": "accumulate"}
        keys |= {"output_df": "format", "math_fidelity": "fidelity"}
    rule: dict[str, Any] = {key: given[name].name for name, key in keys.items() if name in given}
    operands = _operand_formats(given, is_b)
    if operands and epoch == "Forward":
        rule[OPERANDS] = operands
    parts = [query.NodePredicateBuilder("all", lambda *_: True)]
    if "op_type" in given:
        parts.append(query.op_type(given["op_type"]))
    if "name_regex" in given:
        chosen = given["name_regex"]
        parts.append(query.name_regex(chosen) if isinstance(chosen, str) else chosen)
    return _predicate(functools.reduce(operator.and_, parts)), rule


def _operand_formats(given: dict[str, Any], is_b: bool) -> dict[int | None, tuple[str, bool]]:
    """Formats of operands by place (None: all), and whether activations have them too."""
    bits = dict(given.get("input_parameter_indices_to_optimize", ()))
    found: dict[int | None, tuple[str, bool]] = {
        place: (f"Bfp{number}{'_b' if is_b else ''}", False) for place, number in bits.items()
    }
    formats = given.get("input_df", {})
    if isinstance(formats, DataFormat):
        return {**found, None: (formats.name, True)}
    pairs = formats.items() if isinstance(formats, dict) else enumerate(formats)
    return {**found, **{place: (each.name, bool(activations)) for place, (each, activations) in pairs}}


def _predicate(builder: Callable[..., bool]) -> Predicate:
    """Ask a predicate of PyBuda's about ops by the names and types that the program knows."""

    def holds(op: Named) -> bool:
        return bool(builder(op.label[0] or op.name, _type_of(op)))

    return Predicate(holds, repr(builder))


def _type_of(op: Named) -> str:
    """The type of an op as PyBuda calls it."""
    if op.label[0]:
        return op.label[1]
    short = op.kind.partition("::")[2].partition(".")[0]
    return "matmul" if family_of(op.kind).shape_class == "matmul" else short.strip("_")


def _check_names(config: CompilerConfig, known: set[str]) -> None:
    named = {
        "set_epoch_break": config.op_names_to_epoch_break,
        "set_chip_break": config.op_names_to_chip_break,
        "override_op_size and other overrides": [list(config.balancer_op_overrides)],
    }
    for what, given in named.items():
        for each in (each for several in given for each in several if isinstance(each, str)):
            if node_name(each) not in known:
                near = difflib.get_close_matches(node_name(each), known, 5) or sorted(known)[:5]
                raise PyBudaError(
                    f"{what}: no device has an op {each!r} of its own kernel; there are {', '.join(near)}. A "
                    "small op may run in the kernel of the one before it: enable_auto_fusing=False keeps all"
                )
