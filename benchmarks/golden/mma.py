"""Sets of GPUs' matrix instructions: ``mma_*``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.golden.sections import Array, Result, bits, compared, from_bits, joined
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores import instruction_rule


def _case(
    arrays: Mapping[str, Array], number: object, architecture: str, instruction: str, qualifier: str
) -> Array:
    rule = instruction_rule(architecture, instruction, qualifier)
    a, b = (bits(arrays[f"{number}_{each}"]) for each in "AB")
    a, b = (each if each.dim() == 3 else each[None] for each in (a, b))
    scales = [bits(arrays[f"{number}_S{each}"]) if rule.scale else None for each in "AB"]
    sums = bits(arrays[f"{number}_C"])
    for left, right in zip(a, b, strict=True):
        sums = ops.tensor_core_dot(left, right, sums, *rule.arguments, *scales)
    return from_bits(sums)


def results(arrays: Mapping[str, Array], index: Mapping[str, Any]) -> Iterator[Result]:
    """The cases of each instruction together."""
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for number, architecture, instruction, qualifier, *_ in index.get("cases", []):
        name = f"{instruction}/{architecture}/{qualifier}"
        groups.setdefault(name, []).append((number, architecture, instruction, qualifier))
    used = set()
    for name, cases in groups.items():
        used.update(f"{case[0]}_D" for case in cases)
        wanted = joined([arrays[f"{case[0]}_D"] for case in cases])
        yield compared(name, wanted, lambda cases=cases: joined([_case(arrays, *case) for case in cases]))  # type: ignore[misc]
    rest = [value for key, value in arrays.items() if key.endswith("_D") and key not in used]
    if rest:
        yield Result("not in the index", 0, joined(rest).size, "no case says what it is")
