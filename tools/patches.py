"""The table of docs/upstream.md: what torch-loom replaces in PyTorch, from where it is declared."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import groupby
from pathlib import Path

import torch  # noqa: F401 (first: it registers the device, which applies patches)

from tools.blocks import markdown_table, replace_block
from torch_loom import patches
from torch_loom.patches.declared import CHANGES, Change

FILE = "docs/upstream.md"
BLOCK = "patches"
NONE_FILED = "none filed"
UNKNOWN = "not known"
NEEDS_DEVICE = "needs a device"


def rewritten(root: Path) -> str:
    """Return the text of the page with its table made anew."""
    return replace_block((root / FILE).read_text(encoding="utf-8"), BLOCK, table())


def table() -> str:
    """Return the table, by what is replaced."""
    rows = [
        [
            _names(change),
            change.reason,
            change.issue or NONE_FILED,
            _script(change.shown_under),
            change.until or UNKNOWN,
        ]
        for change in sorted(changes(), key=lambda change: change.replaces)
    ]
    return markdown_table(["replaces", "why", "issue upstream", "script", "can go with"], rows)


def changes() -> list[Change]:
    """Return all that is declared."""
    for module in pkgutil.iter_modules(patches.__path__):
        importlib.import_module(f"{patches.__name__}.{module.name}")
    return CHANGES


def _names(change: Change) -> str:
    """Return the names, those of one owner together."""
    parts = [name.replace(":", ".").rpartition(".") for name in change.replaces]
    owners = [(owner, [part[2] for part in group]) for owner, group in groupby(parts, lambda part: part[0])]
    return "; ".join(
        f"`{owner}.{names[0]}`" if len(names) == 1 else f"of `{owner}`: {', '.join(f'`{n}`' for n in names)}"
        for owner, names in owners
    )


def _script(heading: str) -> str:
    return f"[{heading}](#{heading.lower().replace(' ', '-')})" if heading else NEEDS_DEVICE
