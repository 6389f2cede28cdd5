"""C++ kernels that Inductor generated, compiled for the host and submitted as commands.

A kernel of Inductor's takes addresses and sizes. Here it gets an entry point with the one signature that the
runtime submits, so that it runs on the current stream, is kept by graphs, and is told to the tape.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import CppCodeCache, LambdaFuture

from torch_loom import _C, config
from torch_loom.errors import DeviceTypeError

_ENTRY = "loom_entry_"


def compile_kernel(name: str, argument_types: Sequence[str], source: str) -> Any:
    """Compile a kernel; called by the Python code that Inductor generates.

    Args:
        name: what the command is called.
        argument_types: the C++ types of the kernel's arguments: pointers to device memory, to const where the
            kernel only reads, then sizes.
        source: C++ text that defines ``extern "C" void kernel(…)``.

    Returns:
        A :class:`CompiledKernel`, or Inductor's future of one where it compiles in other processes.
    """
    entry = _entry(argument_types)
    if get_compile_threads() <= 1:
        return CompiledKernel(name, argument_types, CppCodeCache.load(entry, optimized_code=source))
    load = CppCodeCache.load_async(entry, submit_fn=AsyncCompile.submit, optimized_code=source)
    return LambdaFuture(lambda: CompiledKernel(name, argument_types, load()))


def _entry(argument_types: Sequence[str]) -> str:
    """The C++ text of the entry point: tensors first, then numbers of eight bytes each."""
    parameters, arguments = [], []
    num_tensors = num_numbers = 0
    for argument_type in argument_types:
        if argument_type.endswith("*"):
            parameters.append("void*")
            arguments.append(f"addresses[{num_tensors}]")
            num_tensors += 1
        else:
            parameters.append(argument_type)
            read = "as_real" if _is_real(argument_type) else "static_cast<int64_t>"
            arguments.append(f"{read}(numbers[{num_numbers}])")
            num_numbers += 1
    return f"""
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
extern "C" void kernel({", ".join(parameters)});
[[maybe_unused]] static double as_real(int64_t bits) {{
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}}
extern "C" const char* {_ENTRY}(void* const* addresses, const int64_t* numbers, const char*) {{
  try {{
    kernel({", ".join(arguments)});
    return nullptr;
  }} catch (const std::exception& error) {{
    static thread_local std::string text;
    text = error.what();
    return text.c_str();
  }} catch (...) {{
    return "it threw what is no std::exception";
  }}
}}
"""


def _is_real(argument_type: str) -> bool:
    return argument_type.removeprefix("const ") in ("float", "double")


class CompiledKernel:
    """A compiled kernel; a call submits it to the current stream of its tensors' device."""

    def __init__(self, name: str, argument_types: Sequence[str], library: ctypes.CDLL) -> None:
        self.name = name
        address = ctypes.cast(getattr(library, _ENTRY), ctypes.c_void_p).value
        assert address is not None
        self._function = address
        self._library = library  # kept loaded
        pointers = [kind for kind in argument_types if kind.endswith("*")]
        self._num_tensors = len(pointers)
        self._is_written = [not kind.startswith("const ") for kind in pointers]
        self._reals = [_is_real(kind) for kind in argument_types[self._num_tensors :]]

    def __call__(self, *arguments: Any) -> None:
        """Submit it.

        Args:
            arguments: tensors of one device, then numbers. A tensor of the host without dimensions, which a
                kernel only reads, is copied to the device.
        """
        tensors = list(arguments[: self._num_tensors])
        numbers = list(arguments[self._num_tensors :])
        if any(self._reals):
            numbers = [_bits(n) if real else n for n, real in zip(numbers, self._reals, strict=True)]
        device = self._device(tensors)
        _C.launch_compiled(self._function, self.name, device, tensors, self._is_written, numbers, b"")

    def _device(self, tensors: list[torch.Tensor]) -> int:
        own = config.device_name()
        device = next((t.device for t in tensors if t.device.type == own), None)
        if device is None:
            raise DeviceTypeError(f"{self.name}: none of its tensors is on a {own} device")
        for i, tensor in enumerate(tensors):
            if tensor.device.type == "cpu" and tensor.dim() == 0 and not self._is_written[i]:
                tensors[i] = tensor.to(device)
        return device.index


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
