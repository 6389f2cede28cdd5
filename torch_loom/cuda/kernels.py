"""What a program's own kernels are under the name cuda: CUDA C++ is compiled for the host, Triton is found.

Triton's kernels are compiled by :mod:`torch_loom.kernels.triton`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from torch_loom import _C, config, late
from torch_loom.errors import ConfigurationError
from torch_loom.kernels.cuda_cpp import toolkit
from torch_loom.patches.declared import CUDA_NAME


def find_compilers() -> None:
    """Have modules find what compiles such kernels, those that are imported and those that will be."""
    late.after_import("torch.utils.cpp_extension", _compile_cuda_sources)
    if config.kernel_report() is not None:
        record = importlib.import_module("torch_loom.kernels.cuda_cpp.record")
        record.start(_chip_of, _C.listen_to_launches)
    if not _has_compiled_triton():
        late.after_import("torch._inductor.config", _have_no_triton)


def _chip_of(device: int) -> Any:
    return importlib.import_module("torch_loom.device._core.first_use")._chip_figures(device).chip


def _has_compiled_triton() -> bool:
    # Libraries ask torch.utils._triton.has_triton() to choose between a Triton kernel and torch ops.
    return importlib.util.find_spec("triton") is not None and not config.interprets_triton()


def _have_no_triton() -> None:
    # has_triton() reads this setting. The variable would do it too, but child processes would inherit it.
    if "TORCHINDUCTOR_TRITON_DISABLE_DEVICE_DETECTION" not in os.environ:
        CUDA_NAME.put(sys.modules["torch._inductor.config"], triton_disable_device_detection=True)


def _compile_cuda_sources() -> None:
    # A real toolkit may well be installed, but what it makes would be launched on a GPU.
    cpp_extension: Any = sys.modules["torch.utils.cpp_extension"]
    try:
        home = toolkit.make(
            Path(_C.__file__), is_checked=config.checks_kernels(), finds_races=config.watches_kernels()
        )
    except ConfigurationError as error:
        # Said where something is to be compiled.
        reason = error
        original = cpp_extension._is_cuda_file

        def is_cuda_file(path: str) -> bool:
            if original(path):
                raise reason
            return False

        CUDA_NAME.put(cpp_extension, _is_cuda_file=is_cuda_file)
        return
    CUDA_NAME.put(cpp_extension, CUDA_HOME=str(home))
