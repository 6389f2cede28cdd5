"""Triton's driver for the devices: which one is current, and how a kernel is launched on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from torch_loom import late

# Where Dynamo imports Triton there may be no kernel.
library = late.lazily("torch_loom.kernels.triton.library")
record = late.lazily("torch_loom.kernels.triton.record")

_name = "loom"
# Of devices that have no compute capability: the kernels' front end then offers what a recent GPU has.
_CAPABILITY = (9, 0)
# What triton.testing fills to empty a cache.
_CACHE_BYTES = 256 << 20


def set_device_name(name: str) -> None:
    """Say which name the devices have."""
    global _name
    _name = name
    device_module.cache_clear()


@functools.cache
def device_module() -> Any:
    """Return the module of the devices, as ``torch.cuda``."""
    return torch.get_device_module(_name)


class _Utils:
    """What Triton asks of a device, and the loading of kernels."""

    @staticmethod
    def load_binary(name: str, text: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        loaded = library.load(name, text.decode())
        return loaded, loaded, 32, 0, 1024

    @staticmethod
    def unload_module(module: Any) -> None:
        pass

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        found = device_module().get_device_properties(device)
        return {
            "max_shared_mem": getattr(found, "shared_memory_per_block_optin", 232448),
            "max_num_regs": getattr(found, "regs_per_multiprocessor", 65536),
            "multiprocessor_count": getattr(found, "multi_processor_count", 1),
            "warpSize": getattr(found, "warp_size", 32),
            "sm_clock_rate": getattr(found, "clock_rate", 1_000_000),
            "mem_clock_rate": getattr(found, "memory_clock_rate", 1_000_000),
            "mem_bus_width": getattr(found, "memory_bus_width", 4096),
        }


def launcher(source: Any, metadata: Any) -> Callable[..., None]:
    """Return what launches one compiled kernel: Triton gives it all arguments of the program."""
    signature = list(source.signature.values())
    select = _selection(signature)

    # A function and no object with __call__: each launch goes through it.
    def launch(
        x: int,
        y: int,
        z: int,
        stream: int,
        loaded: Any,
        packed: Any,
        metadata: Any,
        enter_hook: Callable[[Any], object] | None,
        exit_hook: Callable[[Any], object] | None,
        *arguments: Any,
    ) -> None:
        given = select(arguments)
        if enter_hook is not None:
            enter_hook(metadata)
        device = device_module().current_device()
        if record.recorder is not None:
            record.recorder.note(loaded, source, device, (x, y, z), given)
        loaded.kernel.launch(device, x, y, z, given)
        if exit_hook is not None:
            exit_hook(metadata)

    return launch


def _selection(signature: Sequence[Any]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return what leaves out constants, and takes tuples and descriptors apart."""
    if any(isinstance(kind, tuple) or _is_descriptor(kind) for kind in signature):
        return lambda arguments: tuple(_flattened(signature, arguments))
    places = [number for number, kind in enumerate(signature) if kind != "constexpr"]
    if len(places) > 1:
        return itemgetter(*places)
    return lambda arguments: tuple([arguments[place] for place in places])


def _is_descriptor(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith("tensordesc")


def _flattened(signature: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments without tuples and constants; descriptors as what they describe."""
    found: list[Any] = []
    for kind, argument in zip(signature, arguments, strict=True):
        if isinstance(kind, tuple):
            found.extend(_flattened(kind, argument))
        elif _is_descriptor(kind):
            found.extend(_described(argument))
        elif kind != "constexpr":
            found.append(argument)
    return found


def _described(descriptor: Any) -> list[Any]:
    try:
        from triton.backends.driver import decompose_descriptor
    except ImportError:
        shape, strides = descriptor.shape, descriptor.strides
        # Since Triton 3.5.
        padding = [descriptor.padding == "nan"] if hasattr(descriptor, "padding") else []
        return [descriptor.base, *shape, *strides, *padding, *shape, *strides]
    return list(decompose_descriptor(descriptor))


class HostDriver(DriverBase):  # type: ignore[misc]
    """The devices of torch-loom, as Triton sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.utils = _Utils()
        self.launcher_cls = launcher

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_device(self) -> int:
        return int(device_module().current_device())

    def set_current_device(self, device: int) -> None:
        device_module().set_device(device)

    def get_current_stream(self, device: int) -> int:
        # Launches go to the current stream; the number only tells them apart.
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        find = getattr(device_module(), "get_device_capability", None)
        found = find(device) if find is not None and _name == "cuda" else _CAPABILITY
        return (int(found[0]), int(found[1]))

    def get_current_target(self) -> Any:
        major, minor = self.get_device_capability(self.get_current_device())
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device(_name, self.get_current_device())

    def get_device_interface(self) -> Any:
        return device_module()

    def map_python_to_cpp_type(self, ty: str) -> str:
        return "void*" if ty.startswith("*") else ty

    def get_benchmarker(self) -> Any:
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        # On a GPU it has _CACHE_BYTES. Here the chip takes the time of filling them, and the host does not.
        return torch.empty(1024, dtype=torch.int, device=_name)

    def clear_cache(self, cache: torch.Tensor) -> None:
        # That time hides what the host takes to launch the kernel that is measured, as on a GPU.
        cache.zero_()
        device = device_module().get_device_properties()
        kilobytes_per_second = (
            getattr(device, "memory_clock_rate", 1_000_000)
            * 2
            * getattr(device, "memory_bus_width", 4096)
            // 8
        )
        seconds = _CACHE_BYTES / (1000 * max(kilobytes_per_second, 1))
        device_module()._sleep(int(seconds * 1000 * getattr(device, "clock_rate", 1_000_000)))

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args
