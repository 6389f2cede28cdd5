"""Where ops come from: what Triton's IR says behind ``loc``."""

from __future__ import annotations

import re

from torch_loom.kernels.ttir.model import Place

_ALIAS = re.compile(r"^(#loc\w*) = loc\((.*)\)\s*$", re.MULTILINE)
_FILE = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAMED = re.compile(r'^"(?:[^"\\]|\\.)*"\((.*)\)$', re.DOTALL)
_CALL = re.compile(r"^callsite\((.*) at (.*)\)$", re.DOTALL)
_FUSED = re.compile(r"^fused(?:<[^\[]*>)?\[(.*)\]$", re.DOTALL)
_UNKNOWN = Place("", 0)


class Places:
    """The places of a text, which name one another."""

    def __init__(self, text: str) -> None:
        self._aliases = {match.group(1): match.group(2) for match in _ALIAS.finditer(text)}
        self._known: dict[str, Place] = {}

    def find(self, text: str) -> Place:
        """Return the place that stands in the parentheses of a ``loc``."""
        if text not in self._known:
            self._known[text] = self._find(text.strip(), 0)
        return self._known[text]

    def _find(self, text: str, depth: int) -> Place:
        if depth > 100:
            return _UNKNOWN
        if text.startswith("#"):
            return self._find(self._aliases.get(text, "unknown"), depth + 1)
        if (match := _FILE.match(text)) is not None:
            return Place(match.group(1), int(match.group(2)))
        for pattern in (_NAMED, _CALL, _FUSED):
            if (match := pattern.match(text)) is not None:
                found = self._find(match.group(1).split(", ")[0], depth + 1)
                if found is not _UNKNOWN or pattern is not _CALL:
                    return found
                return self._find(match.group(2), depth + 1)
        return _UNKNOWN
