"""Names of a model as names of Python.

``torch.fx`` writes them into the text of a function that it executes, so no character of an untrusted file
but letters, digits and underscores comes through.
"""

from __future__ import annotations

import keyword
import re

from torch import fx

__all__ = ["argument", "attribute", "node"]

_OTHERS = re.compile(r"[^0-9A-Za-z_]+")
_TAKEN = frozenset(dir(fx.GraphModule))


def attribute(name: str, used: set[str]) -> str:
    """Return a path of attributes, ``encoder.0.weight``, that none of those used is or leads through."""
    parts = [_OTHERS.sub("_", part) for part in name.split(".")]
    parts = [f"{part}_" if part in _TAKEN or keyword.iskeyword(part) else part for part in parts if part]
    parts = parts or ["constant"]
    path = ".".join(parts)
    number = 0
    while _collides(path, used):
        number += 1
        path = ".".join([*parts[:-1], f"{parts[-1]}_{number}"])
    used.add(path)
    # What leads to it is a module, which no tensor may replace.
    used.update(f"{'.'.join(parts[:length])}." for length in range(1, len(parts)))
    return path


def _collides(path: str, used: set[str]) -> bool:
    parts = path.split(".")
    leads = any(".".join(parts[:length]) in used for length in range(1, len(parts)))
    return path in used or f"{path}." in used or leads


def argument(name: str, used: set[str]) -> str:
    """Return the name of an argument that none of those used has."""
    made = _OTHERS.sub("_", name)
    if not made or made[0].isdigit() or keyword.iskeyword(made) or made == "self":
        made = f"input_{made}".rstrip("_")
    unique, number = made, 0
    while unique in used:
        number += 1
        unique = f"{made}_{number}"
    used.add(unique)
    return unique


def node(name: str, op_type: str) -> str:
    """Return the name of a node of the graph."""
    made = _OTHERS.sub("_", name).strip("_") or _OTHERS.sub("_", op_type)
    return made.lower() if not made[0].isdigit() else f"node_{made.lower()}"
