"""``torch_loom.compile``: from a module to an executable placed on chips."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx.traceback import preserve_node_meta

from torch_loom import config
from torch_loom.chips import Chip, load, with_host
from torch_loom.compiler import overrides
from torch_loom.compiler.cache import Entry, entry_for
from torch_loom.compiler.capture import NotPlainError, changes_itself
from torch_loom.compiler.frontend import (
    Exported,
    exported,
    folded_of,
    is_elsewhere,
    live_sources,
    plainly_exported,
    state_of,
)
from torch_loom.compiler.ir import placed, value_of
from torch_loom.compiler.lowering import changed, plan_data, program_of
from torch_loom.compiler.onnx.file import is_model
from torch_loom.compiler.onnx.module import named_errors
from torch_loom.compiler.options import Options, configuration
from torch_loom.compiler.overrides import Overrides
from torch_loom.compiler.passes import PLAN_PASSES, RUN_PASSES, Context, run
from torch_loom.compiler.passes.runner import PassRecord
from torch_loom.compiler.plan.build import plan_graph
from torch_loom.compiler.plan.check import violations
from torch_loom.compiler.plan.model import Plan
from torch_loom.compiler.samples import on_one_device, specs_of
from torch_loom.compiler.target import Target, target_of
from torch_loom.compiler.training import Loss, exported_step
from torch_loom.errors import CompilerOptionError, PlacementError
from torch_loom.image.executable import Executable, device_of

log = logging.getLogger("torch_loom.compiler")

MAX_CHIPS = 32
"""A galaxy's."""


def compile_module(
    module: nn.Module | str | os.PathLike[str] | Any,
    sample_inputs: Sequence[Any],
    sample_kwargs: Mapping[str, Any] | None = None,
    *,
    chip: str | Chip | None = None,
    num_chips: int = 1,
    device: str | torch.device | None = None,
    dump: str | Path | None = None,
    checks: bool = False,
    progress: Callable[[str], None] | None = None,
    cache: bool = True,
    optimizer: torch.optim.Optimizer | None = None,
    loss: Loss | None = None,
    plans_later: bool = False,
    **options: Any,
) -> Executable:
    """Compile a module for chips: choose formats, fuse, place in epochs, plan memory.

    Args:
        module: in the mode (``eval()``) that it is to run in. It stays as it is. Or an ONNX model: a path or
            a ``ModelProto`` (:func:`torch_loom.compiler.load_onnx`).
        sample_inputs, sample_kwargs: what its forward takes; the shapes of tensors are compiled for, wherever
            they are. Numbers, bools, texts and None become constants, which calls give as they are here.
        chip: the name or description of the chip to plan for; default: that of ``device``, or of the board
            that ``device_config`` names.
        num_chips: how many such chips the plan has; a board or a cluster's descriptor has its own number.
        device: where the executable runs and its results are; default: the current device. Inputs are moved
            there. Of a module elsewhere it has a copy: what changes later is seen by neither.
        dump: a folder for the graph after each pass.
        checks: whether graphs are checked after each pass.
        progress: called with the name of each pass before it runs.
        cache: whether what was compiled earlier is taken from the folder TORCH_LOOM_COMPILE_CACHE, and kept
            there; never with ``dump``, ``checks`` or ``optimizer``.
        optimizer: of the module's parameters. Each run is then a training step: forward, backward and the
            optimizer's step; it returns the loss. Parameters of a module on the device are trained in place.
            The optimizer stays as it is: its state is where training begins, its rates are constants. It is
            run as with ``capturable=True`` and ``foreach=False``.
        loss: takes the module's result and the last of the inputs, which the module does not take; without
            one the module returns the loss.
        plans_later: plan where the executable is asked for its plan, and not before it can run: errors of
            placement are raised there. Its program is made for runs, of more constants than an image needs.
            A module elsewhere is not copied: what is computed of its parameters is.
        options: of :func:`set_configuration_options`, for this call alone; ``numerics``: ``"exact"`` has
            eager's bits, ``"formats"`` the numbers of the chip's data formats. Default: ``"formats"`` where
            an option asks for other numbers than eager's, else ``"exact"``.

    Raises:
        CompilerOptionError: an option, break or override that cannot be.
        NotPlainError: with ``plans_later``, a module elsewhere that needs an export: move it first.
        ExportError: the model branches on values, or has results whose sizes depend on them.
        OnnxError: an ONNX model that cannot be read.
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
    _check_types(
        chip=chip, dump=dump, checks=checks, cache=cache, sample_kwargs=sample_kwargs, progress=progress
    )
    _check_training(optimizer, loss)
    own = _options_of(options)
    place = device_of(device, CompilerOptionError)
    target = _target_of(chip, num_chips, own, place)
    args, kwargs = _samples_of(sample_inputs), dict(sample_kwargs or {})
    if isinstance(module, str | os.PathLike) or is_model(module):
        _tell(progress, "import")
        module = _imported(module, (*args, *kwargs.values()))
    with named_errors(module):
        args, kwargs = on_one_device(module, args, kwargs, place)
        task = _Task(
            module=module,
            args=args,
            kwargs=kwargs,
            place=place,
            target=target,
            options=own,
            training=None if optimizer is None else (optimizer, loss),
            dump=None if dump is None else Path(dump),
            checks=checks,
            progress=progress,
            plans_later=plans_later,
        )
        executable = _captured(task)
        if executable is None and plans_later and is_elsewhere(module, place):
            raise NotPlainError("the module is elsewhere, and only an export can tell what it does")
        executable = executable or _kept_or_compiled(task, config.compile_cache() if cache else None)
    if plans_later:
        return executable
    executable.plan["model"] = _name_of(module)  # not the cache's: one of another name may have made the same
    if own.backend_output_dir:
        executable.write_outputs(own.backend_output_dir, own.performance_trace)
    return executable


def _name_of(module: nn.Module) -> str:
    """Return what reports call a model: of an ONNX model its file or name, otherwise its class."""
    return str(getattr(module, "meta", {}).get("name") or type(module).__name__)


@dataclass(frozen=True)
class _Task:
    """What is compiled and for what, checked."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: torch.device
    target: Target
    options: Options
    training: tuple[torch.optim.Optimizer, Loss | None] | None
    dump: Path | None
    checks: bool
    progress: Callable[[str], None] | None
    plans_later: bool


def _options_of(given: Mapping[str, Any]) -> Options:
    own = configuration().but(**given)
    return own.but(numerics="formats") if "numerics" not in given and _wants_formats(own) else own


def _target_of(chip: str | Chip | None, num_chips: int, options: Options, place: torch.device) -> Target:
    described = chip if isinstance(chip, Chip) else load(chip) if chip is not None else _chip_of(place)
    if type(num_chips) is not int or not 1 <= num_chips <= MAX_CHIPS:
        raise CompilerOptionError(f"num_chips={num_chips!r}: it takes a number from 1 to {MAX_CHIPS}")
    target = target_of(described, options, num_chips)
    return replace(target, chip=with_host(target.chip))


def _samples_of(given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise CompilerOptionError(
            f"sample_inputs is a {type(given).__name__}; it takes a tuple of what the forward takes, "
            "such as (x,); arguments by name go into sample_kwargs"
        )
    return tuple(given)


def _check_training(optimizer: Any, loss: Any) -> None:
    if loss is not None and optimizer is None:
        raise CompilerOptionError("loss: it is for training; give the optimizer, too")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise CompilerOptionError(
            f"optimizer is a {type(optimizer).__name__}; it takes a torch.optim.Optimizer of the module's "
            "parameters"
        )


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "chip": ((str, Chip), "the name of a chip, the path of a description or a Chip; default: the device's"),
    "dump": ((str, os.PathLike), "the path of a folder"),
    "checks": ((bool,), "True or False"),
    "cache": ((bool,), "True or False"),
    "sample_kwargs": ((Mapping,), "a dictionary of arguments by name"),
    "progress": ((Callable,), "a function of the name of a pass"),  # type: ignore[dict-item]
}


def _check_types(**given: Any) -> None:
    for name, value in given.items():
        kinds, words = _TYPES[name]
        is_left_out = value is None and bool not in kinds
        if not is_left_out and not isinstance(value, kinds):
            raise CompilerOptionError(f"{name}={value!r}: it takes {words}")


def _captured(task: _Task) -> Executable | None:
    """Compile a plain module for runs, without an export; None: it is not plain, or ops are asked by name.

    The plan, which names lines and modules, is made by an export where it is asked for.
    """
    options, decided = task.options, overrides.current()
    names_ops = options.op_intermediates_to_save or decided.precisions or decided.hosts
    is_for_runs = task.plans_later and not options.is_exact and not (names_ops or task.dump or task.checks)
    if not is_for_runs or task.training is not None or not isinstance(task.module, nn.Module):
        return None
    try:
        with _without_collection():
            source = plainly_exported(task.module, task.args, task.kwargs, task.place)
            return _placed(task, source, _context(task, source), _planned_later(task))
    except Exception as error:
        # An export says what is wrong with the module, if anything is.
        log.info("exported, because it is not plain: %s", str(error).partition("\n")[0])
        return None


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A graph is made to be kept: looking for garbage meanwhile goes through all objects of the program."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _planned_later(task: _Task) -> Callable[[], dict[str, Any]]:
    decided = overrides.current()

    def plan() -> dict[str, Any]:
        with overrides.applied(decided), preserve_node_meta():
            return _compiled(task).plan

    return plan


def _kept_or_compiled(task: _Task, folder: Path | None) -> Executable:
    """Take what was compiled earlier from the folder, or compile it and keep it there."""
    needs_passes = task.training is not None or task.dump is not None or task.checks
    if folder is None or needs_passes or not isinstance(task.module, nn.Module):
        return _compiled(task)
    begun = time.perf_counter()
    _tell(task.progress, "cache")
    entry = entry_for(
        task.module,
        task.args,
        task.kwargs,
        task.options,
        task.target,
        task.place,
        folder,
        plans_later=task.plans_later,
    )
    executable = entry.load(_planned_later(task)) if entry is not None else None
    if executable is None:
        return _compiled(task, entry)
    if task.plans_later:
        return executable
    executable.plan["passes"] = [vars(_record("cache", begun, executable.num_ops))]
    executable.plan["options"] = changed(task.options)
    return executable


def _compiled(task: _Task, entry: Entry | None = None) -> Executable:
    """Compile, and keep the result where an entry of the cache is given."""
    _tell(task.progress, "export")
    begun = time.perf_counter()
    if task.training is None:
        source = exported(task.module, task.args, task.kwargs, task.place, task.options.is_exact)
        if task.plans_later and isinstance(task.module, nn.Module):
            own = state_of(task.module)
            source.specs["keeps_state"] = changes_itself(task.module, task.args, task.kwargs, own)
    else:
        source = exported_step(task.module, task.args, task.kwargs, task.place, *task.training)
    if source.updates and isinstance(task.module, nn.Module):
        _warn_of_copies(task.module, task.place)
    context = _context(task, source)
    context.records.append(_record("export", begun, len(source.graph.graph.nodes)))
    executable = _placed(task, source, context)
    if entry is not None:
        entry.store(executable, source.sources, context.parameters, context.folded)
    return executable


def _context(task: _Task, source: Exported) -> Context:
    return Context(
        chip=task.target.chip,
        options=task.options,
        parameters=dict(source.parameters),
        checks=task.checks,
        dump=task.dump,
        progress=task.progress,
        updated=frozenset(source.updates),
    )


def _placed(
    task: _Task, source: Exported, context: Context, plan_later: Callable[[], dict[str, Any]] | None = None
) -> Executable:
    """Run the passes and plan where each op of the exported graph runs, or let ``plan_later`` plan it."""
    graph = run(source.graph, RUN_PASSES if task.plans_later else PLAN_PASSES, context)
    decided = overrides.current()
    saved = task.options.op_intermediates_to_save
    program = program_of(graph, context.parameters, source.updates, saved)
    inputs = [n for n in graph.graph.find_nodes(op="placeholder") if n.name not in context.parameters]
    batch = next((int(value_of(n).shape[0]) for n in inputs if value_of(n).dim()), 1)

    # Those of a module elsewhere are still there; what only constants were computed of is not read any more.
    own = {node.name: node for node in graph.graph.find_nodes(op="placeholder")}
    tensors = {
        name: _on(context.parameters[name], task.place) if own[name].users else context.parameters[name]
        for name in program.tensors
    }
    folded = folded_of(task.module, task.place, source.sources, context.parameters, *context.folded)

    def plan() -> dict[str, Any]:
        made = _planned(graph, context, task.target, decided)
        return plan_data(graph, made, task.target, context, batch)

    return Executable(
        program,
        tensors,
        plan_later or (plan if task.plans_later else plan()),
        {**source.specs, **specs_of(task.module, task.args, task.kwargs), "saved": list(saved)},
        task.place,
        replays=task.options.backend_opt_level >= 1,
        folded=folded,
        sources=live_sources(source.sources, context.folded[0], folded),
    )


def _on(value: torch.Tensor, place: torch.device) -> torch.Tensor:
    return value if value.device == place else placed(value, place)


def _warn_of_copies(module: nn.Module, place: torch.device) -> None:
    """A module elsewhere keeps its values, while its copy on the device is trained."""
    for name, tensor in state_of(module).items():
        if tensor.device != place:
            warnings.warn(
                f"runs change parameters or buffers, and {name} is on {tensor.device}: a copy on {place} "
                f"changes and the module does not. Move the module first, module.to({str(place)!r}), then "
                "make its optimizer",
                stacklevel=5,  # who called compile_module
            )
            return


def _imported(model: Any, inputs: Sequence[Any]) -> nn.Module:
    """Read an ONNX model onto the device of its inputs."""
    from torch_loom.compiler.onnx import load_onnx

    module: nn.Module = load_onnx(model)
    place = next((each.device for each in inputs if isinstance(each, torch.Tensor)), None)
    return module if place is None else module.to(place)


def _record(name: str, begun: float, num_ops: int) -> PassRecord:
    return PassRecord(name, (time.perf_counter() - begun) * 1e3, num_ops, num_ops)


def _tell(progress: Callable[[str], None] | None, name: str) -> None:
    if progress is not None:
        progress(name)


def _planned(graph: torch.fx.GraphModule, context: Context, target: Target, decided: Overrides) -> Plan:
    begun = time.perf_counter()
    _tell(context.progress, "plan")
    plan = plan_graph(graph, context, target, decided)
    num_ops = sum(len(epoch.placed) for epoch in plan.epochs)
    context.records.append(_record("plan", begun, num_ops))
    if found := violations(plan, target):
        raise PlacementError("the plan is wrong, which is an error of the compiler: " + "; ".join(found[:5]))
    return plan


def _wants_formats(options: Options) -> bool:
    return bool(
        options.default_df_override
        or options.amp_level == 2
        or not options.enable_stable_softmax
        or overrides.current().precisions
    )


def _chip_of(device: torch.device) -> Chip:
    from torch_loom import _C

    return load(_C.chip(device.index).name)
