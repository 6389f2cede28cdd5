"""Minima and maxima of halves by a descriptor, which Triton's pass to addresses refuses.

A GPU's memory reduces them itself; for addresses there is no such atomic. They pass as sums, with what they
are in their location, and are named again in the text.
"""

from __future__ import annotations

import re
import tempfile
from typing import Any

from triton._C.libtriton import ir

_REDUCTION = re.compile(
    r"^(?P<head>.*\btt\.descriptor_reduce) (?P<kind>min|max)(?P<rest>,.*xb?f16\b.*) loc\((?P<place>#\w+)\)$",
    re.MULTILINE,
)
_DEFINITION = re.compile(
    r'^(?P<name>#\w+) = loc\((?:"loom\.(?P<kind>min|max)"\(|callsite\((?P<of>#\w+) at )', re.MULTILINE
)
_SUM = re.compile(r"(?P<head>\btt\.atomic_rmw) fadd(?P<rest>,.* loc\((?P<place>#\w+)\))$", re.MULTILINE)


def as_sums(module: Any) -> Any:
    """Return the module with such reductions as sums."""
    text = str(module)
    places: list[str] = []

    def marked(match: re.Match[str]) -> str:
        # A location may be named in front of its definition, but not inside of another one.
        name = f"#loom{len(places)}"
        places.append(f'{name} = loc("loom.{match["kind"]}"({match["place"]}))\n')
        return f"{match['head']} add{match['rest']} loc({name})"

    changed = _REDUCTION.sub(marked, text)
    if not places:
        return module
    changed = f"{changed.rstrip()}\n{''.join(places)}"
    with tempfile.NamedTemporaryFile("w", suffix=".ttir") as file:
        file.write(changed)
        file.flush()
        found = ir.parse_mlir_module(file.name, module.context)
    found.context = module.context
    return found


def named_again(text: str) -> str:
    """Return the text of a module, with addresses by now, with what those sums are."""
    kinds: dict[str, str] = {}
    definitions = list(_DEFINITION.finditer(text))
    for _ in range(len(definitions) + 1):  # those of functions that were called lead to others
        count = len(kinds)
        for definition in definitions:
            kind = definition["kind"] or kinds.get(definition["of"])
            if kind:
                kinds[definition["name"]] = kind
        if len(kinds) == count:
            break
    if not kinds:
        return text

    def renamed(definition: re.Match[str]) -> str:
        return (
            f"{definition['head']} {kinds[definition['place']]}{definition['rest']}"
            if definition["place"] in kinds
            else definition[0]
        )

    return _SUM.sub(renamed, text)
