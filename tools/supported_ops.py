"""docs/supported_ops.md: the op table's families, and what each shipped chip does itself."""

from __future__ import annotations

import torch

from tools.blocks import markdown_table
from torch_loom import _C, chips, ops
from torch_loom.chips import Chip
from torch_loom.chips.core import for_core

FILE = "docs/supported_ops.md"

INTRODUCTION = """\
# Supported ops

Written by `make docs` from the op table in `torch_loom/ops` and the chip descriptions in
`torch_loom/chips`; do not edit.

Every op that PyTorch's CPU has runs on every chip. A chip's *native* ops and dtypes are those that it does
itself; what is outside of them is a fallback: it runs all the same, is counted
(`torch.loom.fallback_stats()`) and logged once at level INFO ("`aten::exp` op ran on CPU instead of LOOM",
with the Python stack; `TORCH_LOOM_LOG_LEVEL=INFO` shows it). `TORCH_LOOM_FALLBACK=warn` warns of it once,
`TORCH_LOOM_FALLBACK=error` refuses it. Composite ops count as the ops that reach the device. Copies, views
and fills are native on every chip, in every dtype. Beside floating-point operands, integers and booleans
are indices and masks and need not be in the chip's dtypes."""


# Only look at a tensor: there is nothing to fall back.
_NO_COMPUTATION = frozenset({"_foobar", "_has_compatible_shallow_copy_type", "_local_scalar_dense"})


def served_ops() -> list[str]:
    """Return the names of the ops of `aten` that have a kernel for the device, without overloads."""
    torch.get_device_module("loom").init()  # most kernels are registered then
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return sorted(
        {name.removeprefix("aten::").partition(".")[0] for name in names if name.startswith("aten::")}
    )


def _can_fall_back(op: str, chip: Chip) -> bool:
    name = f"aten::{op}"
    takes_memory = (
        ops.family_of(name).shape_class == "factory" and ops.family_of(name).kernels == "data.nothing"
    )
    if op in _NO_COMPUTATION or op.startswith("_test_"):
        return False
    if takes_memory and "not_borrowed" not in ops.facts_of(name):
        return False
    return all(
        _C.fallback_reason(for_core(chip), name, overload if overload != "default" else "", ()) == ""
        for overload in getattr(torch.ops.aten, op).overloads()
    )


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def families(served: list[str]) -> str:
    """Return the section of the op table: each family with the ops that it has on the device."""
    members: dict[str, list[str]] = {}
    for op in served:
        members.setdefault(ops.family_of(f"aten::{op}").name, []).append(op)
    rows = [
        [family.name, family.shape_class, _names(members[family.name])]
        for family in (*ops.FAMILIES, ops.DEFAULT)
        if family.name in members
    ]
    table = markdown_table(["family", "cost follows from", "ops with a kernel of the device"], rows)
    text = (
        "What is known of an op stands in the entry of its family: how its cost follows from shapes and "
        "dtypes, and what the runtime must know of it. An op "
        "without an entry costs the bytes of its operands. A gradient (`…_backward`), an in-place form and a "
        "`_foreach_` form belong to the family of their op."
    )
    return f"## Families\n\n{text}\n\n{table.rstrip()}"


def section(chip: Chip, served: list[str]) -> str:
    """Return the section of one chip."""
    parts = [f"## {chip.name}", f"{chip.description}.", f"Dtypes: {_names(list(chip.dtypes))}."]
    if "dtypes" in chip.sources:
        parts.append(f"Source: {chip.sources['dtypes']}.")
    if chip.native_ops is None:
        parts.append(
            f"Ops: all; {len(served)} of `aten` have a kernel of their own, the others are made of them."
        )
    else:
        parts.append(f"Ops: {_names(sorted(chip.native_ops))}.")
    if "native_ops" in chip.sources:
        parts.append(f"Source: {chip.sources['native_ops']}.")
    if chip.native_ops is not None:
        others = [op for op in served if _can_fall_back(op, chip)]
        body = _names(others)
        parts.append(f"<details><summary>{len(others)} ops that fall back</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts)


def page() -> str:
    """Return the text of docs/supported_ops.md."""
    shipped = [chips.load(name) for name in chips.available()]
    served = served_ops()
    rows = [
        [
            f"[`{chip.name}`](#{chip.name})",
            "all" if chip.native_ops is None else str(len(chip.native_ops)),
            ", ".join(chip.dtypes),
        ]
        for chip in shipped
    ]
    table = markdown_table(["chip", "native ops", "native dtypes"], rows)
    return (
        "\n\n".join([INTRODUCTION, table, *(section(chip, served) for chip in shipped), families(served)])
        + "\n"
    )
