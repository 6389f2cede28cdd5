"""A compiled kernel: from the text that Triton keeps to what is launched."""

from __future__ import annotations

import json
from typing import Any

from torch_loom import _C
from torch_loom.kernels.host_compiler import FOR_THIS_MACHINE, compiled

# Begins the text, in front of what is known of the kernel beside it.
HEADER = "// torch-loom kernel "


def header_of(text: str) -> dict[str, Any]:
    """Return what is known of a kernel beside its text."""
    first, _, _ = text.partition("\n")
    header: dict[str, Any] = json.loads(first.removeprefix(HEADER))
    return header


def load(name: str, text: str) -> _C.ProgramKernel:
    """Return what launches a kernel.

    Args:
        name: of the kernel.
        text: its C++, with the line that begins with :data:`HEADER`.

    Raises:
        CompilationError: there is no compiler, or it refuses the text.
    """
    header = header_of(text)
    contraction = "fast" if header["fuses"] else "off"
    address = compiled(text, text, options=(*FOR_THIS_MACHINE, f"-ffp-contract={contraction}"))
    return _C.ProgramKernel(
        name,
        address,
        header["parameters"],
        header["are_written"],
        header["block_bytes"],
        header["is_watched"],
        None,
    )
