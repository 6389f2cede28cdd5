"""Kernels written in CUDA C++, for the host: a loop over all threads of all blocks, one after the other."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import torch

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.devices import current_device
from torch_loom.device.jiterator.host_compiler import ENTRY, compiled
from torch_loom.device.jiterator.source import GUARD, PRELUDE
from torch_loom.device.streams import stream as stream_context
from torch_loom.errors import CompilationError, DeviceTypeError

# What needs threads that run side by side, which a loop over them is not.
_UNSUPPORTED = re.compile(
    r"\b(__shared__|__syncthreads\w*|__syncwarp|__shfl\w*|__ballot\w*|__any_sync|__all_sync|__activemask"
    r"|cooperative_groups|asm|wmma|cudaLaunch\w*)\b|<<<"
)

_TEXT = r"""
struct uint3 { unsigned x, y, z; };
using dim3 = uint3;
static thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;
static constexpr int warpSize = 32;
#define __global__
template <typename T, typename V> T atomicAdd(T* at, V value) { T old = *at; *at += value; return old; }
template <typename T, typename V> T atomicSub(T* at, V value) { T old = *at; *at -= value; return old; }
template <typename T, typename V> T atomicMax(T* at, V value) {
  T old = *at;
  if (old < value) *at = value;
  return old;
}
template <typename T, typename V> T atomicMin(T* at, V value) {
  T old = *at;
  if (value < old) *at = value;
  return old;
}
inline void __threadfence() {}
"""

# Each argument has 16 bytes: its kind ('t', 'i', 'f') and its value; for a tensor the number of its address.
_LAUNCH = r"""
#include <stdexcept>
#include <tuple>
#include <utility>

template <typename P>
static P loom_argument_(void* const* addresses, const char* slot) {
  int64_t whole;
  double real;
  memcpy(&whole, slot + 8, 8);
  memcpy(&real, slot + 8, 8);
  if constexpr (std::is_pointer_v<P>) {
    if (*slot != 't') throw std::invalid_argument("a pointer needs a tensor");
    return static_cast<P>(addresses[whole]);
  } else {
    if (*slot == 't') throw std::invalid_argument("a tensor needs a pointer");
    return *slot == 'f' ? static_cast<P>(real) : static_cast<P>(whole);
  }
}

template <typename... P, size_t... I>
static void loom_launch_(void (*kernel)(P...), void* const* addresses, const int64_t* numbers,
                         const char* scalars, std::index_sequence<I...>) {
  if (numbers[0] != static_cast<int64_t>(sizeof...(P))) {
    throw std::invalid_argument("it takes " + std::to_string(sizeof...(P)) + " arguments, but got " +
                                std::to_string(numbers[0]));
  }
  [[maybe_unused]] const std::tuple<P...> values{loom_argument_<P>(addresses, scalars + 16 * I)...};
  const auto size = [&](int i) { return static_cast<unsigned>(numbers[i]); };
  gridDim = {size(1), size(2), size(3)};
  blockDim = {size(4), size(5), size(6)};
  uint3& b = blockIdx;
  uint3& t = threadIdx;
#define LOOM_EACH(index, size) for (index = 0; index < size; ++index)
  LOOM_EACH(b.z, gridDim.z) LOOM_EACH(b.y, gridDim.y) LOOM_EACH(b.x, gridDim.x)
    LOOM_EACH(t.z, blockDim.z) LOOM_EACH(t.y, blockDim.y) LOOM_EACH(t.x, blockDim.x)
      kernel(std::get<I>(values)...);
}

template <typename... P>
static void loom_launch_(void (*kernel)(P...), void* const* addresses, const int64_t* numbers,
                         const char* scalars) {
  loom_launch_(kernel, addresses, numbers, scalars, std::index_sequence_for<P...>());
}

extern "C" const char* ENTRY(void* const* addresses, const int64_t* numbers, const char* scalars) {
  return loom_guarded_([&] { loom_launch_(&NAME, addresses, numbers, scalars); });
}
"""


def _compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: list[str] | None = None,
    nvcc_options: list[str] | None = None,
) -> CompiledKernel:
    """Compile a kernel of CUDA C++ for the host.

    Its threads run one after the other, in the order of their indices, so that atomic functions need no care;
    what needs threads side by side is refused.

    Args:
        kernel_source: defines ``__global__ void kernel_name(…)``; parameters are pointers and numbers.
        kernel_name: which function; with its arguments if it is a template, as ``"scale<float>"``.
        compute_capability, cuda_include_dirs, nvcc_options: for nvcc, and ignored.

    Raises:
        TypeError: the source or the name is no text.
        CompilationError: the source uses shared memory, barriers, warp functions or other things that a loop
            over threads has not, or the compiler refuses it.
    """
    for what, value in (("kernel_source", kernel_source), ("kernel_name", kernel_name)):
        if not isinstance(value, str):
            raise TypeError(f"{what} must be a str, but got {type(value).__name__}")
    unsupported = _UNSUPPORTED.search(kernel_source)
    if unsupported is not None:
        raise CompilationError(
            f"{unsupported[0]} is not supported: threads of a block run one after the other here. The code:\n"
            + kernel_source
        )
    launch = _LAUNCH.replace("ENTRY", ENTRY).replace("NAME", kernel_name)
    text = "\n".join((PRELUDE, _TEXT, GUARD, '#line 1 "code"', kernel_source, '#line 1 "generated"', launch))
    return CompiledKernel(kernel_name, compiled(text, kernel_source, divides_whole_numbers=True))


class CompiledKernel:
    """A kernel that :func:`_compile_kernel` made.

    Attributes:
        name: of its function.
    """

    def __init__(self, name: str, function: int) -> None:
        self.name = name
        self._function = function

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
            shared_mem: must be 0.
            stream: where to run it; the current one if None.

        Raises:
            TypeError: an argument is neither tensor nor number.
            ValueError: a size is not positive, shared memory is wanted, or a whole number has more than 64
                bits.
            DeviceTypeError: a tensor is not on the loom device of the first tensor.
        """
        if shared_mem != 0:
            raise ValueError(f"There is no shared memory here: shared_mem must be 0, but got {shared_mem}")
        sizes = [*_sizes("grid", grid), *_sizes("block", block)]
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
        with stream_context(stream):
            _C.launch_compiled(
                self._function,
                self.name,
                device,
                tensors,
                [True] * len(tensors),
                [len(args or ()), *sizes],
                packed,
            )


def _sizes(name: str, given: Sequence[int]) -> list[Any]:
    sizes = [*given, 1, 1, 1][: max(3, len(given))]
    if len(sizes) != 3 or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
        raise ValueError(f"{name} must be 1 to 3 positive numbers, but got {tuple(given)}")
    return sizes
