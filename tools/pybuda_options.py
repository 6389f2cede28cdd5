"""The page of PyBuda's settings, from their declarations."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from tools.blocks import markdown_table
from torch_loom.pybuda.compiler_config import CompilerConfig
from torch_loom.pybuda.wanted import in_words

FILE = "docs/pybuda_options.md"
_INTRODUCTION = """# Settings of PyBuda's compiler

Written by `python -m tools.docs`: the fields of `pybuda.CompilerConfig`, what each changes, and which warn or
are refused when they are set to another value. `tests/pybuda/test_settings.py` has a test of each row. Names
that do not exist raise with the nearest name, and values that a setting does not take. What
`set_configuration_options` does not have is an attribute of what
`pybuda.config._get_global_compiler_config()` returns, as in PyBuda.
"""


def _default(each: Any) -> str:
    value = each.default if each.default_factory is MISSING else each.default_factory()
    return f"`{getattr(value, 'name', repr(value))}`"


def page() -> str:
    """Returns the page."""
    types = CompilerConfig.types()
    rows = [
        [f"`{field.name}`", _default(field), in_words(types[field.name]), field.metadata["effect"]]
        for field in fields(CompilerConfig)
    ]
    return f"{_INTRODUCTION}\n{markdown_table(['setting', 'default', 'takes', 'effect'], rows)}\n"
