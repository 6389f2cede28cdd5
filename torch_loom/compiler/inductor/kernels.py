"""C++ kernels that Inductor generated, compiled for the host and submitted as commands.

A kernel of Inductor's takes addresses and sizes. Here it gets an entry point with the signature that the
runtime submits, so that it runs on the current stream, is kept by graphs, and is reported to the tape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.codecache import CppCodeCache, LambdaFuture
from torch._inductor.utils import clear_on_fresh_cache

from torch_loom import _C

_ENTRY = "loom_entry_"

# (device index, sizes, strides, dtype): what generated code makes its buffers with.
make_buffer = _C.empty_strided


@clear_on_fresh_cache
class KernelCache(CppCodeCache):
    """Inductor's cache of compiled libraries, with the header precompiled that all kernels begin with."""

    # Declared as the base class declares it.
    cache: dict[str, Callable[[], ctypes.CDLL | ModuleType]] = {}  # noqa: RUF012
    cache_clear = staticmethod(cache.clear)

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return "torch/csrc/inductor/cpp_prefix.h"


def compile_kernel(name: str, argument_types: Sequence[str], source: str) -> Any:
    """Compile a kernel; called by the Python code that Inductor generates.

    Args:
        name: what the command is called.
        argument_types: the C++ types of the kernel's arguments: pointers to device memory, to const where the
            kernel only reads, then sizes.
        source: C++ text that defines ``extern "C" void kernel(…)``.

    Returns:
        What submits it to the current stream of its tensors' device: it takes tensors of one device, then
        numbers. A tensor of the host without dimensions that the kernel only reads is copied to the device.
        Inductor's future of that where it compiles in other processes.
    """
    whole = source + _entry(argument_types)
    if get_compile_threads() <= 1:
        return _kernel(name, argument_types, KernelCache.load(whole))
    load = KernelCache.load_async(whole, submit_fn=AsyncCompile.submit)
    return LambdaFuture(lambda: _kernel(name, argument_types, load()))


def _entry(argument_types: Sequence[str]) -> str:
    """The C++ text of the entry point: tensors first, then numbers of eight bytes each."""
    arguments = []
    num_tensors = num_numbers = 0
    for argument_type in argument_types:
        if argument_type.endswith("*"):
            arguments.append(f"static_cast<{argument_type}>(addresses[{num_tensors}])")
            num_tensors += 1
        else:
            read = "as_real" if _is_real(argument_type) else "static_cast<int64_t>"
            arguments.append(f"{read}(numbers[{num_numbers}])")
            num_numbers += 1
    return f"""
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
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


def _kernel(name: str, argument_types: Sequence[str], library: ctypes.CDLL) -> _C.CompiledKernel:
    address = ctypes.cast(getattr(library, _ENTRY), ctypes.c_void_p).value
    assert address is not None
    pointers = [kind for kind in argument_types if kind.endswith("*")]
    are_written = [not kind.startswith("const ") for kind in pointers]
    are_real = [_is_real(kind) for kind in argument_types[len(pointers) :]]
    return _C.CompiledKernel(name, address, are_written, are_real, library)
