"""What Inductor makes of an op: the rules for C++, which it keeps for the type cpu, and a GPU's answers."""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = [
    "ask_for_no_triton",
    "compute_on_device",
    "divide_whole_numbers",
    "fold_on_host",
    "generate_as_cpp",
    "is_no_gpu",
    "lower_as_cpp",
    "multiply_into_wider_dtypes",
    "pad_by_ops",
    "schedule_as_cpp",
]


def is_no_gpu(name: str) -> None:
    """Make Inductor treat the device as an unknown device, under the name cuda too.

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
        # For a type that it does not know, it reads this threshold.
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


def fold_on_host(name: str) -> None:
    """Let the joint graph's constants be evaluated on the CPU.

    Inductor evaluates them where they will lie, and reads the values: each is a wait for the device, and
    in a dry run, which has no values, what was 2 becomes 0 and a product by it is left out of the plan. No
    upstream issue; the function has a note that it should compute on the CPU.
    """
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    from torch_loom import _C

    original: Any = UniformValueConstantFolder._deduce_value
    if getattr(original, "_loom_original", None) is not None:
        return

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cpu() if value.device.type == name else value
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == name else value

    class OnHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            args, kwargs = pytree.tree_map(on_host, (args, kwargs or {}))
            return func(*args, **kwargs)

    def deduce_value(self: Any, node: Any) -> Any:
        with OnHost():  # type: ignore[no-untyped-call]
            value = original(self, node)
        is_on_device = isinstance(value, torch.Tensor) and value.device.type == name
        if is_on_device and _C.device_properties(value.device.index)["driver"] == "null":
            return self.unknown_value  # a constant whose value was left out of a dry run
        return value

    deduce_value._loom_original = original  # type: ignore[attr-defined]
    UniformValueConstantFolder._deduce_value = deduce_value  # type: ignore[method-assign]


def divide_whole_numbers(name: str, takes_zeros: bool) -> None:
    """Let compiled quotients of whole numbers end in a number or an error, as those of eager mode do.

    Quotients that are rounded to zero are computed by the processor's own instruction, which ends the process
    for a zero and for the least number over -1; the other roundings look for both first. Only operands on the
    device are treated so. No upstream issue; docs/upstream.md has a script.

    Args:
        name: of the device.
        takes_zeros: whether a quotient by zero is some number, as on a GPU, instead of an error.
    """
    import sympy  # type: ignore[import-untyped]
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import Where

    patched: Any = lowering
    original: Any = patched.truncdiv
    if getattr(original, "_loom_original", None) is not None:
        return
    pointwise: Any = patched.make_pointwise

    def is_own(*operands: Any) -> bool:
        return any(isinstance(one, ir.IRNode) and ir.get_device_type(one) == name for one in operands)

    def truncdiv(a: Any, b: Any) -> Any:
        if not is_own(a, b):
            return original(a, b)
        dtype = next(one for one in (a, b) if isinstance(one, ir.IRNode)).get_dtype()

        def towards_zero(a: Any, b: Any) -> Any:
            floor, zero = ops.floordiv(a, b), ops.constant(0, dtype)
            is_below = ops.logical_and(ops.lt(floor, zero), ops.ne(ops.remainder(a, b), zero))
            return ops.where(is_below, ops.add(floor, ops.constant(1, dtype)), floor)

        return pointwise(towards_zero)(a, b)

    truncdiv._loom_original = original  # type: ignore[attr-defined]
    patched.truncdiv = truncdiv
    if not takes_zeros:
        return

    def is_whole(value: Any) -> bool:
        if isinstance(value, sympy.Basic):
            return bool(value.is_integer)
        return isinstance(value, int) or (isinstance(value, ir.IRNode) and patched.is_integer_type(value))

    def without_zeros(divisor: Any) -> Any:
        if isinstance(divisor, int):
            return divisor or 1
        if isinstance(divisor, sympy.Basic):  # a number of the program's that changes from call to call
            return Where(sympy.Eq(divisor, 0), sympy.Integer(1), divisor)
        dtype = divisor.get_dtype()

        def replaced(value: Any) -> Any:
            return ops.where(ops.eq(value, ops.constant(0, dtype)), ops.constant(1, dtype), value)

        return pointwise(replaced)(divisor)

    def guarded(lower: Any) -> Any:
        def call(a: Any, b: Any, **kwargs: Any) -> Any:
            divides = kwargs.get("rounding_mode", "trunc") is not None
            if divides and is_own(a, b) and is_whole(a) and is_whole(b):
                b = without_zeros(b)
            return lower(a, b, **kwargs)

        return call

    aten: Any = torch.ops.aten
    prims: Any = torch.ops.prims
    rounded = [aten.div.Tensor_mode, aten.div.Scalar_mode, prims.div.default]
    rests = [aten.remainder, aten.fmod, prims.fmod, prims.remainder]
    rounded += [getattr(packet, overload) for packet in rests for overload in packet.overloads()]
    for op in rounded:
        if op in lowering.lowerings:
            lowering.lowerings[op] = guarded(lowering.lowerings[op])


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


def multiply_into_wider_dtypes(name: str) -> None:
    """Let the device's own kernels compute products in a wider dtype than their operands'.

    The lowerings of ``mm`` and ``bmm`` with ``out_dtype`` refuse every type but cuda and xpu; that of
    ``addmm`` fails with a TypeError on any. No upstream issue.
    """
    from torch._inductor import ir, lowering

    patched: Any = lowering
    lowerings = patched.lowerings

    def lower(op: Any) -> Any:
        original, fallback = lowerings[op], patched.fallback_handler(op, add_to_fallback_set=False)

        def call(left: Any, *args: Any, **kwargs: Any) -> Any:
            return (fallback if ir.get_device_type(left) == name else original)(left, *args, **kwargs)

        return call

    for op in (torch.ops.aten.mm.dtype, torch.ops.aten.bmm.dtype, torch.ops.aten.addmm.dtype):
        lowerings[op] = lower(op)


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
