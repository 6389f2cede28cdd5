"""``torch.compile(backend="loom")``: graphs of ATen ops, run by the engine's kernels and replayed.

Dynamo gives a graph, AOTAutograd makes functional graphs of it, for forward and backward. Each runs the same
kernels as eager does, in the same order, so that results are the same bits; what is saved is the host's time,
by replaying a captured graph.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from torch_loom import config
from torch_loom.chips import Chip, available, load
from torch_loom.compiler import artifacts, built
from torch_loom.compiler.ir import computes, facts
from torch_loom.compiler.options import Options, configuration
from torch_loom.compiler.passes import EAGER_PASSES, FORMAT_PASSES, Context, PassRecord, run
from torch_loom.compiler.whole_layers import decompositions
from torch_loom.errors import CompilerOptionError, DummyDeviceError
from torch_loom.image.replay import Replayer
from torch_loom.patches.tracing import eager_kernels

VENDOR_OPTIONS: dict[str, str] = {
    "cache_dir": "compiled graphs live as long as the process; the mode `compile_only` writes them there",
    "disable_logger": "logging is Python's own, named `torch_loom.compiler`",
    "mode": "nothing is tuned; `compile_only`, alone or in a list, builds without running",
    "npu": "the chip is that of the device",
    "tensor_parallel_size": "a graph runs on one device",
    "use_global_ctx": "there is one context",
    "global_device_id": "tensors say which device",
}
"""Options of torch-rbln's backend, and what they say where its compiler and its NPUs are not."""


@dataclass
class CompiledGraph:
    """What one graph became: for reports.

    Attributes:
        role: ``"inference"``, ``"forward"`` or ``"backward"``.
        graph: after the passes.
        records: of the passes.
        host_nodes: the nodes that stay on the host, and why.
        replayer: what runs it; its ``refusal`` says why it is not replayed.
    """

    role: str
    graph: fx.GraphModule
    records: list[PassRecord]
    host_nodes: dict[str, str]
    replayer: Replayer | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def num_ops(self) -> int:
        """How many nodes compute something."""
        return sum(computes(node) for node in self.graph.graph.nodes)


# The compiled code holds its record, and with it the memory of captured graphs: both go when Dynamo drops it.
_compiled: list[weakref.ref[CompiledGraph]] = []


def compiled_graphs() -> list[CompiledGraph]:
    """Return what the backend has compiled since :func:`reset` and Dynamo still holds, in order."""
    return [graph for each in _compiled if (graph := each()) is not None]


def reset() -> None:
    """Forget what has been compiled, and free the memory of its captured graphs.

    ``torch.compiler.reset()`` drops the code itself, but for what follows a graph break, which Dynamo keeps.
    """
    for graph in compiled_graphs():
        if graph.replayer is not None:
            graph.replayer.clear()
    _compiled.clear()


def loom_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; registered as ``backend="loom"``.

    Args:
        graph: Dynamo's.
        example_inputs: its inputs, fake or real.
        mode: accepted for other backends' programs; it changes nothing.
        options: ``numerics``: ``"exact"`` (the default) runs the engine's kernels, with eager's bits;
            ``"float"`` hands the graph to Inductor, and inference is replayed; ``"formats"`` computes in the
            formats of ``default_df_override``, ``math_fidelity`` and what else decides them. ``host_ops``:
            ``"host"`` or ``"error"``. ``replay``: False never captures. Of torch-rbln's options, ``mode``
            with ``"compile_only"`` in it builds, and writes what is built into ``cache_dir``; calls return
            memory that was not computed. The others are accepted and change nothing.

    Raises:
        CompilerOptionError: an option that does not exist, or with a bad value.
        HostOpError: the chip lacks an op, under ``host_ops="error"``.
        DummyDeviceError: under RBLN_DUMMY_DEVICE, unless it is only to be built.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

    given = {} if options is None else options
    own, replays = _own_options(given)
    build = _build_of(given, mode)
    if build is None and config.is_rbln_dummy():
        raise DummyDeviceError(config.rbln.refusal("a compiled graph"))
    if build is not None:
        own = own.but(numerics="exact")
    if own.numerics == "float":
        from torch._inductor.compile_fx import compile_fx

        # As below: what a training step keeps would be copied out of the memory of its graph.
        is_trained = torch.is_grad_enabled() and any(
            isinstance(example_input, torch.Tensor) and example_input.requires_grad
            for example_input in example_inputs
        )
        patches = {} if replays and is_trained else {"triton.cudagraphs": replays}
        compiled: Any = compile_fx(graph, list(example_inputs), config_patches=patches)
        return compiled  # type: ignore[no-any-return]
    partition = min_cut_rematerialization_partition if own.enable_recompute else default_partition
    compiler = functools.partial(_compile, options=own, replays=replays, build=build)
    with eager_kernels():
        return aot_autograd(
            fw_compiler=functools.partial(compiler, role="forward"),
            bw_compiler=functools.partial(compiler, role="backward"),
            inference_compiler=functools.partial(compiler, role="inference"),
            partition_fn=partition,
            decompositions=decompositions() if own.numerics == "formats" else {},
        )(graph, example_inputs)


@dataclass(frozen=True)
class _Build:
    """A graph is to be built and not run.

    Attributes:
        folder: where it is written; None for nowhere.
    """

    folder: str | None


def _build_of(given: Mapping[str, Any], mode: Any) -> _Build | None:
    if not artifacts.is_asked_for(given.get("mode", mode)):
        return None
    folder = given.get("cache_dir")
    return _Build(None if folder is None else os.fspath(folder))


def _check_vendor(given: Mapping[str, Any]) -> None:
    folder, devices = given.get("cache_dir"), given.get("tensor_parallel_size")
    _check_npu(given.get("npu"))
    if not isinstance(folder, str | os.PathLike | None):
        raise CompilerOptionError(f"cache_dir={folder!r}: it takes the path of a folder")
    modes = given.get("mode")
    most = max(torch.get_device_module(config.device_name()).device_count(), 1)
    # What is built alone may be for another machine.
    is_number = type(devices) is int and devices >= 1
    if devices is not None and (not is_number or (devices > most and not artifacts.is_asked_for(modes))):
        raise CompilerOptionError(
            f"tensor_parallel_size={devices!r}: it takes a number of devices, of which there are {most}"
        )
    for mode in modes if isinstance(modes, list | tuple) else [modes]:
        if not isinstance(mode, str | None):
            raise CompilerOptionError(f"mode={modes!r}: it takes a text or a list of texts")
        # Other modes are the vendor's, and change nothing here.
        near = difflib.get_close_matches(mode or "", [artifacts.COMPILE_ONLY], 1, 0.8)
        if near and mode not in near:
            raise CompilerOptionError(f"mode={modes!r}: do you mean {artifacts.COMPILE_ONLY!r}?")


def _check_npu(name: Any) -> None:
    """Refuse what is no name of an NPU; which one it is changes nothing."""
    if name is None or (isinstance(name, str) and re.fullmatch(r"RBLN-C[A-Z]\d\d", name)):
        return
    known = sorted(filter(None, (load(chip).npu_name for chip in available())))
    near = difflib.get_close_matches(str(name).upper(), known, 1)
    hint = f"; do you mean {near[0]!r}?" if near else ""
    raise CompilerOptionError(f"npu={name!r}: it takes the name of an NPU, such as {', '.join(known)}{hint}")


def _own_options(given: Mapping[str, Any]) -> tuple[Options, bool]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise CompilerOptionError(
            f'options={given!r}: it takes a dictionary of options by name, such as {{"numerics": "float"}}'
        )
    _check_vendor(given)
    rest = {name: value for name, value in given.items() if name not in VENDOR_OPTIONS}
    for name in rest:
        if near := difflib.get_close_matches(name, VENDOR_OPTIONS, 1, 0.8):
            raise CompilerOptionError(
                f"{name} is no option of the compiler; do you mean {near[0]}? Of torch-rbln's it takes "
                f"{', '.join(VENDOR_OPTIONS)}"
            )
    replays = rest.pop("replay", True)
    if not isinstance(replays, bool):
        raise CompilerOptionError(f"replay={replays!r}: it takes True or False")
    return configuration().but(**rest), replays


def _compile(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    role: str,
    options: Options,
    replays: bool,
    build: _Build | None,
) -> Callable[..., Any]:
    context = Context(chip=chip_of(graph), options=options)
    if options.numerics == "formats":
        places = graph.graph.find_nodes(op="placeholder")
        context.parameters = {places[n].name: inputs[n] for n in _static_inputs() if n < len(places)}
        graph = run(graph, FORMAT_PASSES, context)
    else:
        graph = run(graph, EAGER_PASSES, context)
    hosts = {node.name: facts(node).host_reason for node in graph.graph.nodes if facts(node).host_reason}
    compiled = CompiledGraph(role, graph, context.records, hosts, notes=context.notes)
    _compiled[:] = [each for each in _compiled if each() is not None]
    _compiled.append(weakref.ref(compiled))
    function: Callable[..., Any] = graph.forward
    if build is not None:
        if build.folder is not None:
            artifacts.write(graph, context.chip, build.folder)
        function, replays = artifacts.unset_results(graph), False
    # What a training step keeps for its backward pass would be copied out of the graph's memory; a replay
    # would not go to the host and back, as an op that the chip lacks does in each call.
    if replays and role == "inference" and not hosts:
        compiled.replayer = Replayer(function, _static_inputs())
    call = _boxed(function, compiled)
    if built.is_heard():
        built.tell(built.Built(_name(), graph, lambda inputs: call(list(inputs))))
    return call


def _name() -> str:
    """Return what Dynamo calls the compilation under way, ``"0/0"``; empty if nothing."""
    found = torch._guards.CompileContext.current_compile_id()
    return "" if found is None else str(found)


def _boxed(function: Callable[..., Any], record: CompiledGraph) -> Callable[..., Any]:
    replayer = record.replayer

    def call(inputs: list[Any]) -> Any:
        if replayer is not None:
            results = replayer.call(inputs)
            inputs.clear()
            return results
        given = list(inputs)
        inputs.clear()  # AOTAutograd's convention: inputs can be freed once unused
        return function(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    call._loom_record = record  # type: ignore[attr-defined]
    return call


def _static_inputs() -> Sequence[int]:
    """Return the positions of the compiled graph's parameters and buffers, and of what a program marked."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return metadata.static_input_indices if metadata is not None else ()


def chip_of(graph: fx.GraphModule) -> Chip:
    """Return the chip of the device that a graph's tensors are on; the default device's where it has none."""
    name = config.device_name()
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == name:
            return _chip(value.device.index or 0)
    return _chip(None)


def _chip(index: int | None) -> Chip:
    from torch_loom import _C

    return load(_C.chip(index).name)
