"""All changes to PyTorch's compilers where they have no extension point.

Most are Inductor's, which compares device types with names of its own. Each stands with its reason and the
upstream issue, to be removed when that is closed; docs/upstream.md has them, too.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

_lock = threading.RLock()


def is_no_gpu(name: str) -> None:
    """Let Inductor treat the device as one that it does not know, under the name cuda too.

    It takes cuda for a device of Triton's: it looks for Triton and lowers to what its kernels alone have.
    No upstream issue: no other backend has the name.
    """
    from torch._inductor import config
    from torch._inductor.utils import GPU_TYPES

    if name in GPU_TYPES:
        GPU_TYPES.remove(name)
        setattr(config, f"{name}_backend", "cpp")


def ask_for_no_triton(name: str) -> None:
    """Let the scheduler make the device's code without Triton, under the name cuda too.

    Without Triton it refuses cuda devices whose capability is below 7, whatever code is generated for them.
    No upstream issue: no other backend has the name.
    """
    from torch._inductor.codegen.common import get_scheduling_for_device
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    original: Any = Scheduler.create_backend
    if getattr(original, "_loom_original", None) is not None:
        return

    def create_backend(self: Any, device: torch.device) -> Any:
        scheduling = get_scheduling_for_device(device.type)
        if device.type != name or scheduling is None:
            return original(self, device)
        V.graph.add_device_info(device)
        return scheduling(self)

    create_backend._loom_original = original  # type: ignore[attr-defined]
    Scheduler.create_backend = create_backend  # type: ignore[method-assign]


def schedule_as_cpp(name: str) -> None:
    """Let the scheduler apply to the device the rules for C++ that it keeps for the CPU.

    It asks each node whether it is on the CPU where it means whether C++ is generated for it: reindexed
    loops are for Triton's kernels and fail with a TypeError in those of C++. pytorch/pytorch #189138.
    """
    from torch._inductor.scheduler import BaseSchedulerNode

    def is_cpu(self: Any) -> bool:
        device = self.get_device()
        return device is not None and device.type in ("cpu", name)

    BaseSchedulerNode.is_cpu = is_cpu  # type: ignore[method-assign]


def lower_as_cpp(name: str) -> None:
    """Let the lowerings apply to the device the rules for C++ that they keep for the CPU.

    They ask for the type cpu where they mean loops in C++: a variance takes two steps, since Welford's is
    slow in vectors; more is computed in one loop; tensors are put side by side by copies of each. The rules
    for other types are for Triton's kernels. pytorch/pytorch #189138.
    """
    from torch._inductor import config, ir, lowering

    if getattr(ir.is_cpu, "_loom_original", None) is not None:
        return
    originals: Any = {
        function: getattr(module, function)
        for module, function in (
            (ir, "is_cpu"),
            (lowering, "use_two_step_variance"),
            (lowering, "_pad_as_cat"),
        )
    }

    def is_cpu(x: Any) -> bool:
        return ir.get_device_type(x) in ("cpu", name)

    def use_two_step_variance(x: Any, *args: Any, **kwargs: Any) -> Any:
        if ir.get_device_type(x) != name:
            return originals["use_two_step_variance"](x, *args, **kwargs)
        # The threshold of types that it does not know.
        with config.patch(unroll_reductions_threshold=config.cpp.use_two_step_variance_threshold):
            return originals["use_two_step_variance"](x, *args, **kwargs)

    def pad_as_cat(x: Any, *args: Any) -> Any:
        return None if ir.get_device_type(x) == name else originals["_pad_as_cat"](x, *args)

    is_cpu._loom_original = originals["is_cpu"]  # type: ignore[attr-defined]
    patched: Any = ir, lowering
    patched[0].is_cpu = is_cpu
    patched[1].use_two_step_variance = use_two_step_variance
    patched[1]._pad_as_cat = pad_as_cat
    op = torch.ops.aten.cat.default
    lowering.lowerings[op] = _copied_together(lowering.lowerings[op], name)


def _copied_together(cat: Any, name: str) -> Any:
    from torch._inductor import config, ir

    def lower(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if ir.get_device_type(inputs[0]) != name:
            return cat(inputs, *args, **kwargs)
        with config.patch(max_pointwise_cat_inputs=0, max_complex_pointwise_cat_inputs=0):
            return cat(inputs, *args, **kwargs)

    return lower


def compute_on_device(name: str) -> None:
    """Let the device compute what it and a scalar tensor of the CPU are the operands of.

    The lowering of elementwise ops looks for an operand on a GPU, of the types that Inductor knows. It finds
    none on another device and takes that of the first operand: the result is on the CPU if that is the
    scalar. No upstream issue.
    """
    from torch._inductor import lowering

    patched: Any = lowering
    original = patched.is_gpu
    if getattr(original, "_loom_original", None) is not None:
        return

    def is_gpu(device: str | None) -> bool:
        return device == name or original(device)

    is_gpu._loom_original = original  # type: ignore[attr-defined]
    patched.is_gpu = is_gpu


def pad_by_ops() -> None:
    """Let PyTorch's ops pad jagged tensors in compiled programs.

    The lowerings of these ops ask for the type cuda; what they make of it searches for the row of an element
    within the kernel, which generated C++ cannot. On the CPU they fall back to the same ops, so that nothing
    changes there. No upstream issue.
    """
    from torch._inductor.lowering import lowerings, make_fallback

    aten = torch.ops.aten
    for op in (aten._jagged_to_padded_dense_forward.default, aten._padded_dense_to_jagged_forward.default):
        lowerings.pop(op, None)
        make_fallback(op, warn=False)  # type: ignore[no-untyped-call]


def generate_as_cpp(name: str) -> None:
    """Let the code generator answer C++ where it asks what is generated for the device.

    It takes what it does not know for Triton, whose kernels keep the dtype of an index elsewhere: the check
    of an index fails with an AssertionError in vectorised C++. No upstream issue.
    """
    from torch._inductor import utils

    original: Any = utils.get_current_backend
    if getattr(original, "_loom_original", None) is not None:
        return

    def get_current_backend(device_type: str | None = None) -> Any:
        from torch._inductor.virtualized import V

        kind = device_type or V.graph.get_current_device_or_throw().type
        return original("cpu" if kind == name else kind)

    get_current_backend._loom_original = original  # type: ignore[attr-defined]
    # Others have imported the function by its name.
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch._inductor") and (
            vars(module).get("get_current_backend") is original
        ):
            module.get_current_backend = get_current_backend  # type: ignore[attr-defined]


def capture_as_loom(name: str) -> None:
    """Let ``mode="reduce-overhead"`` capture what was compiled for the device.

    Inductor captures on CUDA alone, by graph trees: they ask its allocator for checkpoints and make tensors
    of them in C++ that other builds lack. Its setting ``cudagraph_policy`` is one for all devices and takes
    no graph apart, so what runs on the host in between could not be captured around. pytorch/pytorch
    #132856.
    """
    from torch._inductor import compile_fx

    original: Any = compile_fx.cudagraphify
    if getattr(original, "_loom_original", None) is not None:
        return

    def cudagraphify(model: Any, static_input_idxs: Any = (), **kwargs: Any) -> Any:
        from torch_loom.compiler.inductor.graphs import capture

        own = capture(model, static_input_idxs, **kwargs)
        if name == "cuda" or not torch.cuda.is_available():
            return own
        # Beside GPUs, the inputs say whose graph it is.
        gpu = original(model, static_input_idxs, **kwargs)

        def run(inputs: Any) -> Any:
            is_gpu = any(isinstance(one, torch.Tensor) and one.device.type == "cuda" for one in inputs)
            return (gpu if is_gpu else own)(inputs)

        return run

    cudagraphify._loom_original = original  # type: ignore[attr-defined]
    compile_fx.cudagraphify = cudagraphify
    _allow_captures(name)
    _cut_as_for_gpus(name)
    _leave_trees_alone(name)


def capture_backend_as_loom() -> None:
    """Let ``torch.compile(backend="cudagraphs")`` capture graphs as ``mode="reduce-overhead"`` does.

    It asks CUDA's trees without Inductor, in a process whose devices have CUDA's name. pytorch/pytorch
    #132856.
    """
    from torch._inductor import cudagraph_trees

    trees: Any = cudagraph_trees

    def cudagraphify_impl(model: Any, inputs: Any, static_input_idxs: Any, **kwargs: Any) -> Any:
        from torch_loom.compiler.inductor.graphs import capture

        run = capture(model, static_input_idxs, **kwargs)
        return lambda inputs: run(inputs)  # the backend sets an attribute of it

    class Manager:
        def set_to_running_backward(self) -> None:
            """Do nothing: no tree is here whose generation would change."""

        def __bool__(self) -> bool:
            return False  # an optimizer asks which tensors a tree holds

    trees.cudagraphify_impl = cudagraphify_impl
    # Of a backward pass that is not captured.
    trees.get_manager = lambda device_index, create_if_none_exists=True: Manager()


def _allow_captures(name: str) -> None:
    """Let Inductor's check of a graph's devices pass for one device of this name, as for one of CUDA."""
    from torch._inductor import cudagraph_utils as checks
    from torch._inductor.utils import is_using_cudagraph_partition

    utils: Any = checks
    original: Any = utils.check_multiple_devices_or_any_cpu_nodes

    def check_devices(nodes: dict[Any, Any]) -> str | None:
        seen = {device.type for device in nodes if device.type != "meta"}
        ignored = {"cpu"} if is_using_cudagraph_partition() else set()
        if seen - ignored == {name} and len([one for one in nodes if one.type == name]) == 1:
            return None
        reason: str | None = original(nodes)
        if reason is not None and name != "cuda" and name in seen:
            utils.cudagraphs_log.warning(reason)  # which Inductor does for CUDA alone
        return reason

    utils.check_multiple_devices_or_any_cpu_nodes = check_devices


def _cut_as_for_gpus(name: str) -> None:
    """Let the scheduler cut graphs around what runs on the host, which to it is all that is no GPU."""
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.utils import GPU_TYPES

    original: Any = Scheduler.should_partition

    def should_partition(self: Any, node: Any) -> str | None:
        GPU_TYPES.append(name)
        try:
            reason: str | None = original(self, node)
        finally:
            GPU_TYPES.remove(name)
        return reason

    Scheduler.should_partition = should_partition  # type: ignore[method-assign]


def _leave_trees_alone(name: str) -> None:
    """Let a backward pass that is not captured run without the manager of CUDA's trees."""
    from torch._inductor import output_code as code

    output_code: Any = code
    original: Any = output_code.maybe_handle_backward_generation

    def maybe_handle_backward_generation(graph: Any, forward_device: Any) -> None:
        if name not in graph.device_types:
            original(graph, forward_device)

    output_code.maybe_handle_backward_generation = maybe_handle_backward_generation


@contextlib.contextmanager
def eager_kernels() -> Iterator[None]:
    """Trace interpolation as one op while this is entered, so that the kernel of eager mode computes it.

    PyTorch registers definitions of these ops in Python, beside its tables of decompositions: tracing with
    symbolic sizes takes them whatever table it is given, and their last bits differ from the kernels'. They
    are the process's, so a thread that traces for another compiler meanwhile sees whole ops, too.
    pytorch/pytorch #116684 and #113024.
    """
    keys = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
    with _lock:
        left_out = []
        for overload in _interpolations():
            found = {key: overload.py_kernels[key] for key in keys if key in overload.py_kernels}
            if found:
                left_out.append((overload, found))
        for overload, found in left_out:
            for key in found:
                del overload.py_kernels[key]
            overload._dispatch_cache.clear()
        try:
            yield
        finally:
            for overload, found in left_out:
                overload.py_kernels.update(found)
                overload._dispatch_cache.clear()


def _interpolations() -> Iterator[Any]:
    kinds = ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d", "nearest1d", "nearest2d", "nearest3d")
    exact = ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d")
    smooth = ("bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa")
    for name in [*(f"upsample_{kind}" for kind in kinds), *(f"_upsample_{one}" for one in (*exact, *smooth))]:
        packet = getattr(torch.ops.aten, name, None)  # by the version of PyTorch
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)
