"""ONNX models as ``torch.fx`` graph modules, which the compiler, devices and training take as any other."""

from __future__ import annotations

import importlib
from typing import Any

# Imported when asked for: reading needs the package onnx, an extra.
_PLACES = {
    "load_onnx": "importer",
    **dict.fromkeys(("Float", "Floats", "Int", "Ints", "Number", "State", "op"), "table"),
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'torch_loom.compiler.onnx' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torch_loom.compiler.onnx.{_PLACES[name]}"), name)
