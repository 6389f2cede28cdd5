"""What Inductor makes of an op: the rules for C++, which it keeps for the type cpu, and a GPU's answers."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.patches.declared import Place, patch

# Inductor asks for the type cpu where it means that C++ is generated.
MEANS_CPP = "pytorch/pytorch#189138"
NO_OTHER = "never: no other backend has the name"


@patch("torch._inductor.config:{device}_backend", until=NO_OTHER)
def no_gpu(place: Place) -> Any:
    """Inductor takes every device called cuda for one of Triton's, whatever scheduling is registered for it:
    it looks for Triton and lowers to what its kernels alone have.
    """
    from torch._inductor.utils import GPU_TYPES

    GPU_TYPES.remove(place.device)
    return "cpp"


@patch("torch._inductor.scheduler:Scheduler.create_backend", until=NO_OTHER)
def no_triton(place: Place) -> Any:
    """Without Triton it refuses cuda devices whose capability is below 7, whatever code is generated for
    them.
    """
    from torch._inductor.codegen.common import get_scheduling_for_device
    from torch._inductor.virtualized import V

    original, name = place.original, place.device

    def create_backend(self: Any, device: torch.device) -> Any:
        scheduling = get_scheduling_for_device(device.type)
        if device.type != name or scheduling is None:
            return original(self, device)
        V.graph.add_device_info(device)
        return scheduling(self)

    return create_backend


@patch("torch._inductor.scheduler:BaseSchedulerNode.is_cpu", issue=MEANS_CPP)
def scheduled_as_cpp(place: Place) -> Any:
    """The scheduler asks each node whether it is on the CPU where it means whether C++ is generated for it:
    reindexed loops are for Triton's kernels and fail with a TypeError in those of C++.
    """

    def is_cpu(self: Any) -> bool:
        device = self.get_device()
        return device is not None and device.type in ("cpu", place.device)

    return is_cpu


@patch("torch._inductor.ir:is_cpu", issue=MEANS_CPP)
def lowered_as_cpp(place: Place) -> Any:
    """The lowerings ask for the type cpu where they mean loops in C++, of which one computes more. The rules
    for other types are for Triton's kernels.
    """
    from torch._inductor import ir

    def is_cpu(x: Any) -> bool:
        return ir.get_device_type(x) in ("cpu", place.device)

    return is_cpu


@patch("torch._inductor.lowering:use_two_step_variance", issue=MEANS_CPP)
def variances_in_two_steps(place: Place) -> Any:
    """A variance takes two steps on the type cpu alone, where C++ is meant: Welford's is slow in vectors."""
    from torch._inductor import config, ir

    original = place.original

    def use_two_step_variance(x: Any, *args: Any, **kwargs: Any) -> Any:
        if ir.get_device_type(x) != place.device:
            return original(x, *args, **kwargs)
        # For a type that it does not know, it reads this threshold.
        with config.patch(unroll_reductions_threshold=config.cpp.use_two_step_variance_threshold):
            return original(x, *args, **kwargs)

    return use_two_step_variance


@patch("torch._inductor.lowering:_pad_as_cat", issue=MEANS_CPP)
def padded_in_place(place: Place) -> Any:
    """On every type but cpu padding puts tensors side by side, which C++ does by copies of each."""
    from torch._inductor import ir

    original = place.original

    def pad_as_cat(x: Any, *args: Any) -> Any:
        return None if ir.get_device_type(x) == place.device else original(x, *args)

    return pad_as_cat


@patch("torch._inductor.lowering:is_gpu")
def computed_on_device(place: Place) -> Any:
    """The lowering of elementwise ops looks for an operand on a GPU, of the types that Inductor knows. It
    finds none on another device and takes that of the first operand: of `scalar + x` the compiled function
    returns a tensor on the CPU if `scalar` is there, the eager one a tensor on the device.
    """
    original = place.original

    def is_gpu(device: str | None) -> bool:
        return device == place.device or original(device)

    return is_gpu


@patch("torch._inductor.fx_passes.joint_graph:UniformValueConstantFolder._deduce_value")
def folded_on_host(place: Place) -> Any:
    """Inductor evaluates the constants of a joint graph where they will lie, and reads the values: each is a
    wait for the device, and in a dry run, which has no values, what was 2 becomes 0 and a product by it is
    left out of the plan. The function has a note that it should compute on the CPU.
    """
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    from torch_loom import _C

    original, name = place.original, place.device

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

    return deduce_value


@patch("torch._inductor.lowering:truncdiv", shown_under="Whole numbers")
def divided_whole_numbers(place: Place) -> Any:
    """Quotients of whole numbers that are rounded to zero are computed by the processor's own instruction,
    which ends the process for a zero and for the least number over -1; other roundings look for both first.

    Only operands on the device are treated so.
    """
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import ops

    original, name = place.original, place.device
    pointwise: Any = lowering.make_pointwise

    def truncdiv(a: Any, b: Any) -> Any:
        nodes = [operand for operand in (a, b) if isinstance(operand, ir.IRNode)]
        if not any(ir.get_device_type(node) == name for node in nodes):
            return original(a, b)
        dtype = nodes[0].get_dtype()

        def towards_zero(a: Any, b: Any) -> Any:
            floor, zero = ops.floordiv(a, b), ops.constant(0, dtype)
            is_below = ops.logical_and(ops.lt(floor, zero), ops.ne(ops.remainder(a, b), zero))
            return ops.where(is_below, ops.add(floor, ops.constant(1, dtype)), floor)

        return pointwise(towards_zero)(a, b)

    return truncdiv


@patch("torch._inductor.utils:get_current_backend", importers="torch._inductor")
def generated_as_cpp(place: Place) -> Any:
    """The code generator takes what it does not know for Triton, whose kernels keep the dtype of an index
    elsewhere: the check of an index fails with an AssertionError in vectorised C++.
    """
    original = place.original

    def get_current_backend(device_type: str | None = None) -> Any:
        from torch._inductor.virtualized import V

        kind = device_type or V.graph.get_current_device_or_throw().type
        return original("cpu" if kind == place.device else kind)

    return get_current_backend
