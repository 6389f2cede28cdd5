"""Kernels that only a GPU runs are refused by one sentence: CUDA C sources and Triton's.

Triton runs its kernels in Python, on copies in host memory, where it is told to (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from torch_loom.errors import NotApplicableError


def refuse() -> None:
    """Have modules refuse such kernels, those that are imported and those that will be."""
    _after_import("torch.utils.cpp_extension", _refuse_cuda_sources)
    _after_import("triton.runtime.jit", _refuse_launches)
    _after_import("triton.runtime.autotuner", _take_first_choice)
    # Libraries that choose between a Triton kernel and torch ops ask torch.utils._triton.has_triton().
    os.environ.setdefault("TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION", "1")


def _after_import(name: str, change: Callable[[Any], None]) -> None:
    # Neither Python nor these packages call anybody when a module has been imported.
    if name in sys.modules:
        change(sys.modules[name])
        return

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
            if fullname != name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())


def _refuse_cuda_sources(cpp_extension: Any) -> None:
    # nvcc may well be installed, but what it makes would be launched on a GPU.
    original = cpp_extension._is_cuda_file

    def is_cuda_file(path: str) -> bool:
        if not original(path):
            return False
        raise NotApplicableError(
            f"{path} is CUDA C: a kernel in it would run on a GPU only, and the cuda devices are "
            "torch-loom's. Build the extension without it, or write the kernel with torch ops."
        )

    cpp_extension._is_cuda_file = is_cuda_file


def _refuse_launches(jit: Any) -> None:
    def run(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        code = self.fn.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        raise NotApplicableError(
            f"{self.fn.__name__} ({place}) is a Triton kernel, which runs on "
            "a GPU only, and the cuda devices are torch-loom's. Set TRITON_INTERPRET=1 before triton is "
            "imported: then Triton runs its kernels in Python; or write the kernel with torch ops."
        )

    jit.JITFunction.run = run


def _take_first_choice(autotuner: Any) -> None:
    # To time the choices, Triton asks a GPU's driver. Their results are the same.
    run = autotuner.Autotuner.run

    @functools.wraps(run)
    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    autotuner.Autotuner.run = run_first
