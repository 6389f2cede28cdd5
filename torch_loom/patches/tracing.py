"""What a trace of AOTAutograd's sees: whole ops that PyTorch takes apart in Python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from torch_loom.patches.declared import declared

_lock = threading.RLock()


@declared(
    "torch:ops.aten.upsample_*.py_kernels",
    issue="pytorch/pytorch#116684, pytorch/pytorch#113024",
    shown_under="Tracing",
)
@contextlib.contextmanager
def eager_kernels() -> Iterator[None]:
    """PyTorch registers definitions of interpolations in Python, beside its tables of decompositions: tracing
    with symbolic sizes takes them whatever table it is given, and their last bits differ from the kernels'.

    While this is entered they are traced as one op, so that the kernel of eager mode computes it. The
    definitions are the process's, so a thread that traces for another compiler meanwhile sees whole ops, too.
    """
    keys = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
    with _lock:
        left_out = []
        for overload in _interpolations():
            found = {key: overload.py_kernels[key] for key in keys if key in overload.py_kernels}
            if found:
                left_out.append((overload, found))
        for overload, found in left_out:
            for key in found:
                del overload.py_kernels[key]
            overload._dispatch_cache.clear()
        try:
            yield
        finally:
            for overload, found in left_out:
                overload.py_kernels.update(found)
                overload._dispatch_cache.clear()


def _interpolations() -> Iterator[Any]:
    kinds = ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d", "nearest1d", "nearest2d", "nearest3d")
    exact = ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d")
    smooth = ("bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa")
    for name in [
        *(f"upsample_{kind}" for kind in kinds),
        *(f"_upsample_{each}" for each in (*exact, *smooth)),
    ]:
        packet = getattr(torch.ops.aten, name, None)  # by the version of PyTorch
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)
