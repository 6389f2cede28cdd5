"""docs/supported_ops.md: what each shipped chip does itself, from its description. `make docs` writes it."""

from __future__ import annotations

import torch

from tools.blocks import markdown_table
from torch_loom import chips
from torch_loom.chips import Chip

FILE = "docs/supported_ops.md"

INTRODUCTION = """\
# Supported ops

Written by `make docs` from the chip descriptions in `torch_loom/chips`; do not edit.

Every op that PyTorch's CPU has runs on every chip. A chip's *native* ops and dtypes are those that it does
itself; what is outside of them is a fallback: it runs all the same, is counted
(`torch.loom.fallback_stats()`) and logged once at level INFO ("`aten::exp` op ran on CPU instead of LOOM",
with the Python stack; `TORCH_LOOM_LOG_LEVEL=INFO` shows it). `TORCH_LOOM_FALLBACK=warn` warns of it once,
`TORCH_LOOM_FALLBACK=error` refuses it. Composite ops count as the ops that reach the device. Copies, views
and fills are native on every chip, in every dtype. Beside floating-point operands, integers and booleans
are indices and masks and need not be in the chip's dtypes."""


# What no chip can fall back to the CPU for: ops that move data or make it without arithmetic, as
# csrc/torch/ops/fallback.cpp exempts them, ops that only allocate or look at a tensor, and PyTorch's
# test ops.
_NO_COMPUTATION = frozenset(
    {
        "_copy_from",
        "_copy_from_and_resize",
        "_efficientzerotensor",
        "_foobar",
        "_foreach_copy_",
        "_foreach_zero_",
        "_has_compatible_shallow_copy_type",
        "_lazy_clone",
        "_local_scalar_dense",
        "copy_",
        "empty",
        "empty_strided",
        "is_set_to",
        "record_stream",
        "resize_",
        "set_",
    }
)
# The engine's names of ops that a chip lists under others.
_LISTED_AS = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_fused_attention_overrideable_backward"
    ),
}


def served_ops() -> list[str]:
    """Return the names of the ops of `aten` that have a kernel for the device, without overloads."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return sorted(
        {name.removeprefix("aten::").partition(".")[0] for name in names if name.startswith("aten::")}
    )


def _is_view(op: str) -> bool:
    packet = getattr(torch.ops.aten, op)
    results = [
        result for overload in packet.overloads() for result in getattr(packet, overload)._schema.returns
    ]
    return bool(results) and all(
        result.alias_info is not None and not result.alias_info.is_write for result in results
    )


def _can_fall_back(op: str, chip: Chip) -> bool:
    is_computed = op not in _NO_COMPUTATION and not op.startswith("_test_") and not _is_view(op)
    return is_computed and not _is_native(op, chip)


def _is_native(op: str, chip: Chip) -> bool:
    native = {name.partition(".")[0] for name in chip.native_ops or ()}
    op = _LISTED_AS.get(op, op)
    return op in native or (op.endswith("_") and op[:-1] in native)


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


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
    return "\n\n".join([INTRODUCTION, table, *(section(chip, served) for chip in shipped)]) + "\n"
