"""Compiles kernels given as Triton's IR, and runs them on arrays of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from torch_loom.kernels.emission import emit
from torch_loom.kernels.emission.kernel import Emitted
from torch_loom.kernels.host_compiler import FOR_THIS_MACHINE, compiled
from torch_loom.kernels.ttir import read

TEXTS = Path(__file__).parent / "ttir"
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Kernel:
    """A kernel of ``tests/kernels/ttir``, with its C++ ``changed``."""

    def __init__(self, name: str, changed: Callable[[str], str] = str) -> None:
        self.emitted: Emitted = emit(read((TEXTS / f"{name}.ttir").read_text(encoding="utf-8")))
        text = changed(self.emitted.text)
        address = compiled(text, text, options=FOR_THIS_MACHINE)
        self._function = _FUNCTION(address)

    def run(self, grid: tuple[int, int, int], *arguments: Any) -> str:
        """Run all programs; return what went wrong, or ""."""
        numbers = [*grid, 0, grid[0] * grid[1] * grid[2], 0, 0, 0, 0, 0, 0]
        memories = []
        for argument, letter in zip(arguments, self.emitted.parameters, strict=True):
            if isinstance(argument, np.ndarray):
                assert letter == "p"
                begin = argument.ctypes.data
                numbers.append(begin)
                memories += [begin, begin + argument.nbytes]
            elif letter == "f":
                numbers.append(int(np.float32(argument).view(np.int32)))
            else:
                numbers.append(argument)
        blocks = np.zeros(self.emitted.block_bytes + 64, np.uint8)
        aligned = (blocks.ctypes.data + 63) // 64 * 64
        error = self._function(_int64s(memories), _int64s(numbers), aligned)
        return "" if error is None else error.decode()


def _int64s(values: list[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)
