"""Kernels that only a GPU runs are refused by one sentence: CUDA C sources and Triton's.

Under ``TRITON_INTERPRET=1`` Triton runs its kernels in Python, on copies in host memory. Neither has an
extension point for this, so each change waits for the import of the module that it changes.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from torch_loom import late
from torch_loom.errors import NotApplicableError
from torch_loom.patches.declared import CUDA_NAME


def refuse() -> None:
    """Have modules refuse such kernels, those that are imported and those that will be."""
    late.after_import("torch.utils.cpp_extension", _refuse_cuda_sources)
    late.after_import("triton.runtime.jit", _refuse_launches)
    late.after_import("triton.runtime.autotuner", _time_no_choices)
    late.after_import("torch._inductor.config", _have_no_triton)


def _have_no_triton() -> None:
    # Libraries that choose between a Triton kernel and torch ops ask torch.utils._triton.has_triton(), which
    # reads this setting. The variable would do it too, but child processes would inherit it.
    if "TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION" not in os.environ:
        CUDA_NAME.put(sys.modules["torch._inductor.config"], triton_disable_device_detection=True)


def _refuse_cuda_sources() -> None:
    # nvcc may well be installed, but what it makes would be launched on a GPU.
    cpp_extension: Any = sys.modules["torch.utils.cpp_extension"]
    original = cpp_extension._is_cuda_file

    def is_cuda_file(path: str) -> bool:
        if not original(path):
            return False
        raise NotApplicableError(
            f"{path} is CUDA C: a kernel in it would run on a GPU only, and the cuda devices are "
            "torch-loom's. Build the extension without it, or write the kernel with torch ops."
        )

    CUDA_NAME.put(cpp_extension, _is_cuda_file=is_cuda_file)


def _refuse_launches() -> None:
    def run(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        code = self.fn.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        raise NotApplicableError(
            f"{self.fn.__name__} ({place}) is a Triton kernel, which runs on "
            "a GPU only, and the cuda devices are torch-loom's. Set TRITON_INTERPRET=1 before triton is "
            "imported: then Triton runs its kernels in Python; or write the kernel with torch ops."
        )

    jit: Any = sys.modules["triton.runtime.jit"]
    CUDA_NAME.put(jit.JITFunction, run=run)


def _time_no_choices() -> None:
    # To time a choice, Triton asks a GPU's driver. All choices have the same result: with equal times it
    # takes the first of those that the program's own pruning leaves.
    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        return [0.0, 0.0, 0.0]  # the quantiles that Triton asks for

    autotuner: Any = sys.modules["triton.runtime.autotuner"]
    CUDA_NAME.put(autotuner.Autotuner, _bench=bench)
