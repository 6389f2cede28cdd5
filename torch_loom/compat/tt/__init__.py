"""tt-xla, Tenstorrent's front end: ``import torch_loom.compat.tt`` makes ``import tt_torch`` work.

``torch.compile(model, backend="tt", options={…})`` then computes in the formats of Tensix chips. Gives way to
the vendor's own packages. docs/tt.md lists the options, and what stands on TTNN and is declined.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from torch_loom.compat.tt.backend import tt_backend
from torch_loom.compat.tt.codegen import codegen_py
from torch_loom.compat.tt.options import (
    DECLINED_NAMES,
    get_custom_compile_options,
    set_custom_compile_options,
)
from torch_loom.compat.tt.weights import (
    apply_weight_dtype_overrides,
    dump_weight_names,
    remove_weight_dtype_overrides,
)

__all__ = [
    "apply_weight_dtype_overrides",
    "codegen_py",
    "dump_weight_names",
    "get_custom_compile_options",
    "install",
    "remove_weight_dtype_overrides",
    "set_custom_compile_options",
    "tt_backend",
]

_NAMES = ("tt_torch", "torch_plugin_tt")


def __getattr__(name: str) -> Any:
    if name in DECLINED_NAMES:
        raise AttributeError(f"tt_torch.{name} is declined: {DECLINED_NAMES[name]}")
    raise AttributeError(f"module 'tt_torch' has no attribute {name!r}")


def install() -> None:
    """Register the backend, and let the vendor's package names find this one where they are not installed."""
    from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend

    for name in _NAMES:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = sys.modules[__name__]
    if "tt" not in _COMPILER_FNS:
        register_backend(tt_backend, name="tt")


install()
