"""What a program's own kernels are under the name cuda: CUDA C sources are refused, Triton is found.

Triton's kernels are compiled by :mod:`torch_loom.kernels.triton`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from torch_loom import late
from torch_loom.errors import NotApplicableError
from torch_loom.patches.declared import CUDA_NAME


def refuse() -> None:
    """Have modules refuse CUDA C sources, those that are imported and those that will be."""
    late.after_import("torch.utils.cpp_extension", _refuse_cuda_sources)
    if not _has_compiled_triton():
        late.after_import("torch._inductor.config", _have_no_triton)


def _has_compiled_triton() -> bool:
    # Libraries ask torch.utils._triton.has_triton() to choose between a Triton kernel and torch ops.
    return importlib.util.find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") != "1"


def _have_no_triton() -> None:
    # has_triton() reads this setting. The variable would do it too, but child processes would inherit it.
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
