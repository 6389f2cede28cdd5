"""From a model to something that runs on the devices: torch.compile, and the compiler of its own."""

from __future__ import annotations

import importlib
from typing import Any

# Where each public name is; imported when it is asked for, since torch.compile needs few of them.
_PLACES = {
    **dict.fromkeys(("Options", "configuration", "set_configuration_options"), "options"),
    **dict.fromkeys(
        (
            *("configure_mixed_precision", "override_dram_queue_placement", "override_op_placement"),
            *("override_op_size", "override_t_stream_dir", "reset_configuration"),
            *("set_chip_break", "set_epoch_break"),
        ),
        "overrides",
    ),
    **dict.fromkeys(("Predicate", "layer_regex", "name_regex", "op_type"), "predicates"),
    **dict.fromkeys(("CompiledGraph", "compiled_graphs"), "backend"),
    "compile_module": "api",
    "load_onnx": "onnx",
}

__all__ = sorted(_PLACES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'torch_loom.compiler' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torch_loom.compiler.{_PLACES[name]}"), name)
