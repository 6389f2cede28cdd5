"""``torch.cuda._compile_kernel``: a kernel of CUDA C++ from its text."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_loom import _C, config
from torch_loom.config import settings
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.devices import current_device, get_device_properties
from torch_loom.device.streams import stream as stream_context
from torch_loom.errors import CompilationError, DeviceTypeError
from torch_loom.kernels import host_compiler

# Of a block: on the largest of the chips, CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability".
_MOST_THREADS = 1024
_MOST_DEPTH = 64
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_SHARED_BYTES = 227 * 1024
_USUAL_SHARED_BYTES = 48 * 1024


def _compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: list[str] | None = None,
    nvcc_options: list[str] | None = None,
) -> CompiledKernel:
    """Compile a kernel of CUDA C++ for the host.

    Args:
        kernel_source: defines ``__global__ void kernel_name(…)``; parameters are pointers and numbers.
        kernel_name: which function; with its arguments if it is a template, as ``"scale<float>"``.
        cuda_include_dirs: folders of the source's headers.
        compute_capability, nvcc_options: for nvcc, and ignored.

    Raises:
        TypeError: the source or the name is no text.
        CompilationError: the source uses what torch-loom's CUDA C++ lacks (docs/cuda_cpp.md), or the compiler
            refuses it.
    """
    for what, value in (("kernel_source", kernel_source), ("kernel_name", kernel_name)):
        if not isinstance(value, str):
            raise TypeError(f"{what} must be a str, but got {type(value).__name__}")
    # Imported with the first kernel: `import torch` would compile its patterns for programs without any.
    from torch_loom.kernels.cuda_cpp import library

    text = library.text_of(kernel_source, kernel_name, host_compiler.ENTRY)
    given = library.options(is_checked=config.checks_kernels(), finds_races=config.watches_kernels())
    includes = [str(folder) for folder in cuda_include_dirs or ()]

    def run(options: list[str], result: Path) -> None:
        host_compiler.run(options, result, kernel_source)

    def build(source: Path, made: Path) -> None:
        try:
            library.build(text, given, includes, run, source, made, Path(_C.__file__))
        except library.RefusedError as refusal:
            raise CompilationError(f"{refusal}. The code:\n{kernel_source}") from refusal

    key = library.key_of(text, [*given, *includes, config.value(settings.COMPILER), str(torch.__version__)])
    if _recorder() is not None:
        _recorder().note_source(kernel_name, kernel_source)
    return CompiledKernel(kernel_name, host_compiler.built(key, build))


def _recorder() -> Any:
    """Return what counts launches for ``loom kernels``; None where it does not run."""
    return getattr(sys.modules.get("torch_loom.kernels.cuda_cpp.record"), "recorder", None)


class CompiledKernel:
    """A kernel that :func:`_compile_kernel` made.

    Attributes:
        name: of its function.
    """

    def __init__(self, name: str, function: int) -> None:
        self.name = name
        self._function = function
        self._shared_bytes = 0

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Let launches have more dynamic shared memory than 48 KiB.

        Args:
            shared_mem_bytes: up to how many bytes.

        Raises:
            RuntimeError: a block of the current device's chip has less.
        """
        most = get_device_properties().shared_memory_per_block_optin or _MOST_SHARED_BYTES
        if shared_mem_bytes > most:
            raise RuntimeError(
                f"Requested shared memory ({shared_mem_bytes} bytes) exceeds device limit ({most} bytes). "
                "Consider reducing block size or shared memory usage."
            )
        self._shared_bytes = shared_mem_bytes

    def __call__(
        self,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        args: Sequence[torch.Tensor | float] | None = None,
        shared_mem: int = 0,
        stream: torch.Stream | None = None,
    ) -> None:
        """Run it, as one kernel.

        Args:
            grid: the number of blocks in up to three dimensions.
            block: the number of threads of a block.
            args: a contiguous tensor of one device for each pointer, a number for each other parameter.
            shared_mem: bytes of dynamic shared memory; from 48 KiB on :meth:`set_shared_memory_config` must
                have asked for them.
            stream: where to run it; the current one if None.

        Raises:
            TypeError: an argument is neither tensor nor number.
            ValueError: a size is not positive or more than a GPU has, a block has more than 1,024 threads, or
                a whole number has more than 64 bits.
            RuntimeError: it takes more shared memory than :meth:`set_shared_memory_config` asked for.
            DeviceTypeError: a tensor is not on the loom device of the first tensor.
        """
        if not 0 <= shared_mem <= _MOST_SHARED_BYTES:
            raise ValueError(f"shared_mem must be 0 to {_MOST_SHARED_BYTES} bytes, but got {shared_mem}")
        if shared_mem >= _USUAL_SHARED_BYTES and shared_mem > self._shared_bytes:
            configured = f"only {self._shared_bytes} bytes configured"
            raise RuntimeError(
                f"Kernel requires {shared_mem} bytes of shared memory (>= 48KB), but "
                f"{configured if self._shared_bytes else 'not configured'}. Call kernel."
                "set_shared_memory_config(shared_mem) after compilation and before launching the kernel."
            )
        sizes = [*_sizes("grid", grid), *_sizes("block", block)]
        if sizes[3] * sizes[4] * sizes[5] > _MOST_THREADS:
            raise ValueError(f"A block has up to {_MOST_THREADS} threads, but block is {tuple(block)}")
        if any(size > most for size, most in zip(sizes, _MOST_BLOCKS, strict=False)):
            raise ValueError(f"A grid has up to {_MOST_BLOCKS} blocks, but grid is {tuple(grid)}")
        if sizes[5] > _MOST_DEPTH:
            raise ValueError(f"A block has up to {_MOST_DEPTH} threads along z, but block is {tuple(block)}")
        tensors: list[torch.Tensor] = []
        packed = b""
        for i, value in enumerate(args or ()):
            if isinstance(value, torch.Tensor):
                if value.device.type != DEVICE_TYPE or value.device != (tensors or [value])[0].device:
                    where = tensors[0].device if tensors else f"a {DEVICE_TYPE} device"
                    raise DeviceTypeError(
                        f"Expected argument {i} of {self.name} on {where}, but it is on {value.device}"
                    )
                packed += struct.pack("=c7xq", b"t", len(tensors))
                tensors.append(value.detach())
            elif isinstance(value, float):
                packed += struct.pack("=c7xd", b"f", value)
            elif isinstance(value, int):
                if not -(2**63) <= value < 2**63:
                    raise ValueError(f"Argument {i} of {self.name} must have 64 bits, but got {value}")
                packed += struct.pack("=c7xq", b"i", value)
            else:
                raise TypeError(f"Argument {i} of {self.name} must be a tensor or number, but got {value!r}")
        device = tensors[0].get_device() if tensors else current_device()
        if _recorder() is not None:
            used = tuple(tensor.untyped_storage().nbytes() for tensor in tensors)
            launch = (device, self.name, "", tuple(sizes[:3]), tuple(sizes[3:]), shared_mem)
            _recorder().note(*launch, config.checks_kernels(), used)
        with stream_context(stream):
            _C.launch_compiled(
                self._function,
                self.name,
                device,
                tensors,
                [True] * len(tensors),
                [len(args or ()), *sizes, shared_mem],
                packed,
                sizes,
            )


def _sizes(name: str, given: Sequence[int]) -> list[Any]:
    sizes = [*given, 1, 1, 1][: max(3, len(given))]
    if len(sizes) != 3 or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
        raise ValueError(f"{name} must be 1 to 3 positive numbers, but got {tuple(given)}")
    return sizes
