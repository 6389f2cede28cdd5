"""``torch_loom.compile``: from a module to an executable placed on chips."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch_loom import config
from torch_loom.chips import Chip, load
from torch_loom.compiler import overrides
from torch_loom.compiler.ir import value_of
from torch_loom.compiler.lowering import plan_data, program_of
from torch_loom.compiler.options import Options, configuration
from torch_loom.compiler.passes import PLAN_PASSES, Context, run
from torch_loom.compiler.passes.runner import PassRecord
from torch_loom.compiler.plan.build import plan_graph
from torch_loom.compiler.plan.check import violations
from torch_loom.compiler.plan.model import Plan
from torch_loom.compiler.target import Target, target_of
from torch_loom.errors import CompilerOptionError, PlacementError
from torch_loom.image.executable import Executable

__all__ = ["compile_module"]

log = logging.getLogger("torch_loom.compiler")


def compile_module(
    module: nn.Module,
    sample_inputs: Sequence[Any],
    sample_kwargs: Mapping[str, Any] | None = None,
    *,
    chip: str | Chip | None = None,
    device: str | torch.device | None = None,
    dump: str | Path | None = None,
    checks: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Executable:
    """Compile a module for chips: choose formats, fuse, place in epochs, plan memory.

    Args:
        module: in the mode (``eval()``) that it is to run in. It stays as it is.
        sample_inputs, sample_kwargs: what its forward takes; their shapes are compiled for.
        chip: the name or description of the chip to plan for; default: that of ``device``, or of the board
            that ``device_config`` names.
        device: where the executable runs; default: the current device.
        dump: a folder for the graph after each pass.
        checks: whether graphs are checked after each pass.
        progress: called with the name of each pass before it runs.
        options: of :func:`set_configuration_options`, for this call alone; ``numerics``: ``"exact"`` has
            eager's bits, ``"formats"`` the numbers of the chip's data formats. Default: ``"formats"`` where
            an option asks for other formats than the dtypes', else ``"exact"``.

    Raises:
        CompilerOptionError: an option, break or override that cannot be.
        PlacementError: it does not fit the chip.
        HostOpError: the chip lacks an op, under ``host_ops="error"``.

    Example:
        >>> import torch, torch_loom
        >>> net = torch.nn.Linear(4, 2).to("loom").eval()
        >>> x = torch.ones(3, 4, device="loom")
        >>> run = torch_loom.compile(net, (x,))
        >>> torch.equal(run(x), net(x))
        True
    """
    own = configuration().but(**options)
    if "numerics" not in options and _wants_formats(own):
        own = own.but(numerics="formats")
    place = _device(device)
    graph, parameters, updates, specs = _exported(
        module, tuple(sample_inputs), dict(sample_kwargs or {}), place
    )
    described = chip if isinstance(chip, Chip) else load(chip) if chip is not None else _chip_of(place)
    target = target_of(described, own)
    context = Context(
        chip=target.chip,
        options=own,
        parameters=parameters,
        checks=checks,
        dump=None if dump is None else Path(dump),
        progress=progress,
    )
    graph = run(graph, PLAN_PASSES, context)
    plan = _planned(graph, context, target)
    program = program_of(graph, context.parameters, updates)
    batch = next(
        (
            int(value_of(n).shape[0])
            for n in graph.graph.find_nodes(op="placeholder")
            if n.name not in context.parameters and value_of(n).dim()
        ),
        1,
    )
    used = {name: context.parameters[name] for name in program.tensors}
    executable = Executable(
        program,
        used,
        plan_data(graph, plan, target, context, batch),
        specs,
        place,
        replays=own.backend_opt_level >= 1,
    )
    if own.backend_output_dir:
        executable.write_outputs(own.backend_output_dir, own.performance_trace)
    return executable


def _planned(graph: torch.fx.GraphModule, context: Context, target: Target) -> Plan:
    import time

    begun = time.perf_counter()
    if context.progress is not None:
        context.progress("plan")
    plan = plan_graph(graph, context, target, overrides.current())
    num_ops = sum(len(epoch.placed) for epoch in plan.epochs)
    context.records.append(PassRecord("plan", (time.perf_counter() - begun) * 1e3, num_ops, num_ops))
    if found := violations(plan, target):
        raise PlacementError("the plan is wrong, which is an error of the compiler: " + "; ".join(found[:5]))
    return plan


def _wants_formats(options: Options) -> bool:
    return bool(options.default_df_override or options.amp_level == 2 or overrides.current().precisions)


def _device(device: str | torch.device | None) -> torch.device:
    name = config.device_name()
    found = torch.device(device) if device is not None else torch.device(name)
    if found.type != name:
        raise CompilerOptionError(f"device={device!r}: an executable runs on {name} devices")
    index = found.index if found.index is not None else getattr(torch, name).current_device()
    return torch.device(name, index)


def _chip_of(device: torch.device) -> Chip:
    from torch_loom import _C

    return load(_C.chip(device.index).name)


def _exported(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> tuple[torch.fx.GraphModule, dict[str, Any], dict[str, int], dict[str, Any]]:
    """The functional graph of a module on the device, its parameters by placeholder, and what runs update."""
    from torch.export import export
    from torch.export.passes import move_to_device_pass
    from torch.utils import _pytree as pytree

    if not isinstance(module, nn.Module):
        raise CompilerOptionError(f"module is a {type(module).__name__}; a torch.nn.Module is compiled")
    with torch.no_grad():
        program = move_to_device_pass(export(module, args, kwargs, strict=False), str(device))
        program = program.run_decompositions({})
    signature = program.graph_signature
    values = {**program.state_dict, **program.constants}
    parameters: dict[str, Any] = {}
    by_target: dict[str, str] = {}
    for spec in signature.input_specs:
        target = spec.target
        if target is not None and target in values and isinstance(values[target], torch.Tensor):
            parameters[spec.arg.name] = values[target].detach().to(device)
            by_target[target] = spec.arg.name
    updates = {}
    for number, spec in enumerate(signature.output_specs):
        if spec.kind.name == "BUFFER_MUTATION":
            updates[by_target[spec.target]] = number
        elif spec.kind.name == "USER_INPUT_MUTATION":
            raise CompilerOptionError(
                f"the module changes its input {spec.target!r}: return the changed tensor instead"
            )
    # What is updated is no constant.
    frozen = {name: value for name, value in parameters.items() if name not in updates}
    graph = program.graph_module
    # Casts leave checks of shapes and dtypes, which the executable makes of its inputs.
    for node in graph.graph.find_nodes(
        op="call_function", target=torch.ops.aten._assert_tensor_metadata.default
    ):
        graph.graph.erase_node(node)
    if updates:
        frozen.update({name: parameters[name] for name in updates})
    out_spec: Any = program.call_spec.out_spec
    try:
        text = pytree.treespec_dumps(out_spec)
    except Exception:  # a class of the program's own: its fields in a list
        text = ""
    leaves, _ = pytree.tree_flatten((args, kwargs))
    given = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    return graph, frozen, updates, {"out": text, "given": given}
