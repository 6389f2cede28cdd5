"""The page of the compiler's options, from their declarations."""

from __future__ import annotations

from dataclasses import fields

from tools.blocks import markdown_table
from torch_loom.compiler.options import PYBUDA_OPTIONS, REFUSED, Options

FILE = "docs/compiler_options.md"
TESTS = "tests/compiler/test_options.py"
_INTRODUCTION = f"""# Options of the compiler

Written by `python -m tools.docs`. `torch_loom.compiler.set_configuration_options(name=value)` sets them for
what is compiled next, `torch_loom.compile(…, name=value)` for one model; None leaves the earlier value. There
is a test of each option's name in `{TESTS}`. It shows the effect in plan, netlist, numbers, files or trace.
"""


def values(name: str) -> str:
    """Returns the values that an option takes, in words: what its check says of one that it does not take."""
    check = {field.name: field.metadata["check"] for field in fields(Options)}[name]
    try:
        check(object())
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{name} takes anything")


def _rows(names: list[str]) -> list[list[str]]:
    defaults = vars(Options())
    effects = {field.name: field.metadata["effect"] for field in fields(Options)}
    rows = []
    for name in names:
        effect = f"refused: {REFUSED[name]}" if name in REFUSED else effects[name]
        default = "" if name in REFUSED else f"`{defaults[name]!r}`"
        rows.append([f"`{name}`", default, values(name), effect])
    return rows


def page() -> str:
    """Returns the page."""
    others = [field.name for field in fields(Options) if field.name not in PYBUDA_OPTIONS]
    head = ["option", "default", "takes", "effect"]
    tables = [markdown_table(head, _rows(names)) for names in (list(PYBUDA_OPTIONS), others)]
    return f"{_INTRODUCTION}\n{tables[0]}\n\n## Of torch_loom.compile alone\n\n{tables[1]}\n"
