"""Which functions of the device's module Dynamo traces: those that it traces of ``torch.cuda``."""

from __future__ import annotations

from typing import Any

import torch

_THEIRS = "torch.cuda."


def add(name: str) -> None:
    """Add rules for ``torch.<name>`` to Dynamo's, for each function that both modules have."""
    from torch._dynamo import trace_rules

    rules: dict[str, Any] = {}
    known: Any
    for known in trace_rules.torch_name_rule_map:
        for path, kind in known.items():
            ours = path.removeprefix(_THEIRS)
            if path.startswith(_THEIRS) and _found(name, ours):
                rules[f"torch.{name}.{ours}"] = kind
    trace_rules.torch_name_rule_map.append(rules)
    trace_rules.get_torch_obj_rule_map.cache_clear()


def add_constants(name: str) -> None:
    """Let Dynamo call those functions while it traces whose answer never changes."""
    from torch._dynamo.variables import torch as torch_variables

    # Lists in the source, dicts when the module has been imported.
    variables: Any = torch_variables
    module: Any = getattr(torch, name)
    for function in ("is_available", "get_device_properties", "current_device", "is_initialized"):
        variables.constant_fold_functions[getattr(module, function)] = None
    for function in ("current_device", "is_initialized"):
        variables.constant_fold_functions_need_guards[getattr(module, function)] = None


def _found(name: str, path: str) -> bool:
    owner: Any = getattr(torch, name)
    for part in path.partition("#")[0].split("."):
        owner = getattr(owner, part, None)
    return callable(owner)
