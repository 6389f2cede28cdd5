"""A compiled kernel: from the text that Triton keeps to what is launched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torch_loom import _C
from torch_loom.chips.cost.launches import THREADS_A_WARP, Launched, know
from torch_loom.kernels.host_compiler import FOR_THIS_MACHINE, compiled

# Begins the text, in front of what is known of the kernel beside it.
HEADER = "// torch-loom kernel "


def header_of(text: str) -> dict[str, Any]:
    """Return what is known of a kernel beside its text."""
    first, _, _ = text.partition("\n")
    header: dict[str, Any] = json.loads(first.removeprefix(HEADER))
    return header


@dataclass(frozen=True)
class Loaded:
    """A kernel that can be launched.

    Attributes:
        kernel: launches it.
        number: the cost model's of it.
        parameters, are_written, checks: as :class:`torch_loom.kernels.emission.kernel.Emitted` has them.
        is_watched: whether each access is reported to the sanitizer.
        options: Triton's, for this kernel.
        text: its C++.
    """

    kernel: _C.ProgramKernel
    name: str
    number: int
    parameters: str
    are_written: list[bool]
    checks: dict[str, int]
    is_watched: bool
    options: dict[str, Any]
    text: str

    def own_text(self) -> str:
        """Return its C++ without what all kernels begin and end with."""
        begin = self.text.rfind("\nvoid run_program(")
        first = self.text.rfind("const Site sites[]", 0, begin)
        lines = self.text[first:begin].splitlines()
        functions = "\n".join(lines[lines.index('{"", "", "", 0}};') + 1 :])
        return functions.strip() + self.text[begin : self.text.find("}  // namespace\n", begin)]


def load(name: str, text: str) -> Loaded:
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
    options = header["options"]
    num_warps = options.get("num_warps", 4)
    launched = Launched(header["outline"], num_warps, options.get("num_stages", 3))
    number = know(launched)
    kernel = _C.ProgramKernel(
        name,
        address,
        header["parameters"],
        header["are_written"],
        header["block_bytes"],
        header["is_watched"],
        number,
        header["outline"]["numbers"],
        THREADS_A_WARP * num_warps,
        None,
    )
    return Loaded(
        kernel,
        name,
        number,
        header["parameters"],
        header["are_written"],
        header["checks"],
        header["is_watched"],
        options,
        text,
    )
