"""What Inductor captures: graphs of the device, where it knows CUDA's alone."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom import config

__all__ = ["capture_as_loom"]


def capture_as_loom(name: str) -> None:
    """Let ``mode="reduce-overhead"`` capture what was compiled for the device.

    In CUDA's name Inductor does that by itself, once it cuts graphs as it does for GPUs.
    """
    _cut_as_for_gpus(name)
    if name != config.CUDA_NAME:
        _replay_as_loom(name)


def _replay_as_loom(name: str) -> None:
    """Let Inductor capture graphs of the device.

    It captures on CUDA alone, by graph trees: they ask its allocator for checkpoints and make tensors
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
        if not torch.cuda.is_available():
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
    _leave_trees_alone(name)


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
        if reason is not None and name in seen:
            utils.cudagraphs_log.warning(reason)  # which Inductor does for CUDA alone
        return reason

    utils.check_multiple_devices_or_any_cpu_nodes = check_devices


def _cut_as_for_gpus(name: str) -> None:
    """Let the scheduler cut graphs around what runs on the host, which to it is all that is no GPU."""
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.utils import GPU_TYPES

    original: Any = Scheduler.should_partition
    if getattr(original, "_loom_original", None) is not None:
        return

    def should_partition(self: Any, node: Any) -> str | None:
        GPU_TYPES.append(name)
        try:
            reason: str | None = original(self, node)
        finally:
            GPU_TYPES.remove(name)
        return reason

    should_partition._loom_original = original  # type: ignore[attr-defined]
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
