"""Names of a model as names of Python.

``torch.fx`` writes them into the text of a function that it executes, so no character of an untrusted file
but letters, digits and underscores comes through.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter

from torch import fx, nn

MAX_PARTS = 32
"""The most parts of a path, each a module within the previous one."""
_OTHERS = re.compile(r"[^0-9A-Za-z_]+")
# Of the class, and what a module sets of its own: parameters, hooks, training.
_TAKEN = frozenset([*dir(fx.GraphModule), *vars(fx.GraphModule(nn.Module(), fx.Graph()))])


class Names:
    """Gives names that have not been given yet."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last = Counter[str]()  # the number that the last name like it got

    def attribute(self, name: str) -> str:
        """Return a path of attributes, ``encoder.0.weight``, that none of those given is or leads through."""
        parts = [_OTHERS.sub("_", part) for part in name.split(".", MAX_PARTS - 1)]
        parts = [f"{part}_" if part in _TAKEN or keyword.iskeyword(part) else part for part in parts if part]
        parts = parts or ["constant"]
        stem = ".".join(parts)
        path = stem
        while self._collides(path):
            self._last[stem] += 1
            path = f"{stem}_{self._last[stem]}"
        self._used.add(path)
        # What leads to it is a module, which no tensor may replace.
        self._used.update(f"{'.'.join(parts[:length])}." for length in range(1, len(parts)))
        return path

    def _collides(self, path: str) -> bool:
        parts = path.split(".")
        leads = any(".".join(parts[:length]) in self._used for length in range(1, len(parts)))
        return path in self._used or f"{path}." in self._used or leads

    def argument(self, name: str) -> str:
        """Return the name of an argument."""
        made = _OTHERS.sub("_", name)
        if not made or made[0].isdigit() or keyword.iskeyword(made) or made == "self":
            made = f"input_{made}".rstrip("_")
        unique = made
        while unique in self._used:
            self._last[made] += 1
            unique = f"{made}_{self._last[made]}"
        self._used.add(unique)
        return unique


def node(name: str, op_type: str) -> str:
    """Return the name of a node of the graph."""
    made = _OTHERS.sub("_", name).strip("_") or _OTHERS.sub("_", op_type)
    return made.lower() if not made[0].isdigit() else f"node_{made.lower()}"
