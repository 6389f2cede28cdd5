"""``torch.nn.parallel`` on these devices, alone or beside CUDA's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from torch_loom import config, late
from torch_loom.patches import eager


def provide(device_type: str) -> None:
    """Put the functions that it calls in place.

    Args:
        device_type: the name of the devices.
    """
    functions = _own_functions()
    if device_type != config.CUDA_NAME and hasattr(torch._C, "_broadcast_coalesced"):
        functions = _beside_cudas(functions, device_type)
    eager.communication.apply(functions)


def _own_functions() -> dict[str, Any]:
    comm = late.lazily("torch_loom.device.comm")
    device_index = late.lazily("torch_loom.device._core.device_index")

    def gather_(tensors: Any, dim: int, destination: int) -> Any:
        return comm.gather(tensors, dim, "cpu" if destination == -1 else destination)

    return {
        "_broadcast": lambda tensor, devices: comm.broadcast(tensor, devices),
        "_broadcast_out": lambda tensor, out: comm.broadcast(tensor, out=out),
        "_broadcast_coalesced": lambda *given: comm.broadcast_coalesced(*given),
        "_scatter": lambda *given: comm.scatter(*given),
        "_scatter_out": lambda tensor, out, dim, streams: comm.scatter(
            tensor, dim=dim, streams=streams, out=out
        ),
        "_gather": gather_,
        "_gather_out": lambda tensors, out, dim: comm.gather(tensors, dim, out=out),
        "nccl": late.lazily("torch_loom.device.comm.nccl"),
        "_get_device_index": lambda *given, **named: device_index._get_device_index(*given, **named),
    }


def _beside_cudas(functions: Mapping[str, Any], device_type: str) -> dict[str, Any]:
    """Return functions that leave to a build for CUDA what is not on these devices."""
    from torch.cuda import nccl

    theirs = {name: getattr(torch._C, name) for name in functions if hasattr(torch._C, name)}
    # By its module's name: torch.nn.parallel.parallel_apply is the function.
    theirs["_get_device_index"] = vars(import_module("torch.nn.parallel.parallel_apply"))["_get_device_index"]

    def choosing(own: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            # Indices alone, and tensors of the host, are for whichever devices there are.
            types = _device_types(args)
            is_own = device_type in types or ("cuda" not in types and not torch.cuda.is_available())
            return (own if is_own else other)(*args, **kwargs)

        return call

    chosen: dict[str, Any] = {name: choosing(functions[name], other) for name, other in theirs.items()}
    own = functions["nccl"]  # whose names are read when they are called: reading one imports the devices
    chosen["nccl"] = SimpleNamespace(
        is_available=choosing(lambda *given: own.is_available(*given), nccl.is_available),
        reduce=choosing(lambda *given, **named: own.reduce(*given, **named), nccl.reduce),
    )
    return chosen


def _device_types(value: Any) -> set[str]:
    if isinstance(value, (torch.Tensor, torch.device)):
        return {value.device.type if isinstance(value, torch.Tensor) else value.type}
    if isinstance(value, (list, tuple)):
        return {kind for part in value for kind in _device_types(part)}
    return set()
