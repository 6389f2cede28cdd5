"""What a build of PyTorch for CUDA has in Python for GPUs: taken away before ours is put in place.

Its kernels are taken out in C++ (``csrc/torch/cuda/builtin_backend.h``). What this leaves is what a build for
the CPU has, so that PyTorch's own Python and libraries find one or the other and nothing of both.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from torch_loom import late, torch_version
from torch_loom.errors import AlreadyInitializedError
from torch_loom.patches.declared import CUDA_NAME


def is_one() -> bool:
    """Return whether the running PyTorch is such a build. Ask before anything is put in place."""
    return hasattr(torch._C, "_cuda_init")


def check_unused() -> None:
    """Raise if the program has used a GPU already: its tensors would be taken for ours.

    Raises:
        AlreadyInitializedError: it has.
    """
    if is_one() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise AlreadyInitializedError(
            "this process has used CUDA's own devices, and cannot have torch-loom's under their name any "
            "more: start it with `loom run`, or import torch_loom.as_cuda before torch."
        )


def give_way() -> None:
    """Take it away."""
    for name in dir(torch._C):
        if name.startswith(torch_version.CUDA_PREFIXES):
            CUDA_NAME.remove(torch._C, name)
    # It has imported the name, and is an object with flags: only its functions have the module's dictionary.
    torch.backends.cudnn.version.__globals__["_cudnn"] = None
    # TorchScript would compile kernels for the GPU.
    torch._C._jit_override_can_fuse_on_gpu(False)


def end_native_kernels() -> None:
    """Take away PyTorch's kernels in Triton and its like, which a build for the CPU has, too.

    They are for ops of some shapes on a GPU. Those without a compiler stay. In a build for CUDA these are
    registered anew: they fall back to the device's kernel then, not to PyTorch's own.
    """
    falls_back = is_one()
    late.after_import("torch._native", lambda: _end_native_kernels(falls_back))


def _end_native_kernels(falls_back: bool) -> None:
    registry: Any = sys.modules["torch._native.registry"]
    compilers = {node.dsl_name for graph in registry._graphs.values() for node in graph} - {"native"}
    if falls_back:
        registry.deregister_op_overrides(disable_dsl_names=sorted(compilers), disable_dispatch_keys="CUDA")
        registry.reenable_op_overrides(enable_dispatch_keys="CUDA")
    elif compilers:
        registry.deregister_op_overrides(disable_dsl_names=sorted(compilers))
