"""What Inductor captures: graphs of the device, where it knows CUDA's alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_loom.patches.declared import Place, patch

_ISSUE = "pytorch/pytorch#132856"


@patch("torch._inductor.compile_fx:cudagraphify", issue=_ISSUE)
def captured(place: Place, capture: Callable[..., Any]) -> Any:
    """Inductor captures on CUDA alone, by graph trees: they ask its allocator for checkpoints and make
    tensors of them in C++ that other builds lack. Its setting `cudagraph_policy` is one for all devices and
    takes no graph apart, so what runs on the host in between could not be captured around.

    Args:
        capture: what captures a compiled graph.
    """
    original = place.original

    def cudagraphify(model: Any, static_input_idxs: Any = (), **kwargs: Any) -> Any:
        own = capture(model, static_input_idxs, **kwargs)
        if not torch.cuda.is_available():
            return own
        # Beside GPUs, the inputs say whose graph it is.
        gpu = original(model, static_input_idxs, **kwargs)

        def run(inputs: Any) -> Any:
            is_gpu = any(isinstance(given, torch.Tensor) and given.device.type == "cuda" for given in inputs)
            return (gpu if is_gpu else own)(inputs)

        return run

    return cudagraphify


@patch("torch._inductor.cudagraph_utils:check_multiple_devices_or_any_cpu_nodes", issue=_ISSUE)
def allowed_captures(place: Place) -> Any:
    """The check of a graph's devices passes for one device of CUDA alone, and warns for CUDA alone."""
    from torch._inductor import cudagraph_utils
    from torch._inductor.utils import is_using_cudagraph_partition

    original, name = place.original, place.device
    utils: Any = cudagraph_utils

    def check_devices(nodes: dict[Any, Any]) -> str | None:
        seen = {device.type for device in nodes if device.type != "meta"}
        ignored = {"cpu"} if is_using_cudagraph_partition() else set()
        if seen - ignored == {name} and len([node for node in nodes if node.type == name]) == 1:
            return None
        reason: str | None = original(nodes)
        if reason is not None and name in seen:
            utils.cudagraphs_log.warning(reason)
        return reason

    return check_devices


@patch("torch._inductor.scheduler:Scheduler.should_partition", issue=_ISSUE)
def cut_graphs(place: Place) -> Any:
    """The scheduler cuts graphs around what runs on the host, which to it is all that is on no GPU of its
    list.
    """
    from torch._inductor.utils import GPU_TYPES

    original, name = place.original, place.device

    def should_partition(self: Any, node: Any) -> str | None:
        GPU_TYPES.append(name)
        try:
            reason: str | None = original(self, node)
        finally:
            GPU_TYPES.remove(name)
        return reason

    return should_partition


@patch("torch._inductor.output_code:maybe_handle_backward_generation", issue=_ISSUE)
def backward_without_trees(place: Place) -> Any:
    """A backward pass that is not captured asks for the manager of CUDA's trees."""
    original = place.original

    def maybe_handle_backward_generation(graph: Any, forward_device: Any) -> None:
        if place.device not in graph.device_types:
            original(graph, forward_device)

    return maybe_handle_backward_generation
