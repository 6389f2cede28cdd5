"""`loom numerics`: what data formats do to a model of a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch_loom.errors import LoomError
from torch_loom.numerics import BlockScaled, DataFormat, compare
from torch_loom.tools import console
from torch_loom.tools.compile import loaded

_NAMES = {each.name.lower(): each for each in (*DataFormat, *BlockScaled) if each is not DataFormat.Invalid}
LAYERS_SHOWN = 20


def run(model: Path, formats: Sequence[str], inputs: Path | None, report: Path | None, mode: str) -> None:
    """Compare a model in each format with float32, print the worst layers, and write a page.

    Args:
        model: a script that defines ``model`` and ``inputs``, or an ONNX file.
        formats: their names, upper or lower case.
        inputs: safetensors by the names of the model's arguments, in the place of the script's ``inputs``.
        report: where to write everything, as its name's ending says: ``.html``, ``.json``, or text.
        mode: ``"fast"`` or ``"silicon"``: whether products are summed as the chips sum them.
    """
    console.check_folders(report)
    if unknown := [name for name in formats if name.lower() not in _NAMES]:
        known = ", ".join(each.name for each in _NAMES.values())
        console.fail(f"there are no formats {', '.join(unknown)}; allowed: {known}", 2)
    try:
        module, args, kwargs = loaded(model, inputs)
        found = compare(module, kwargs or args, [_NAMES[name.lower()] for name in formats], mode=mode)
    except LoomError as error:
        console.fail(error)
    print(found.table(LAYERS_SHOWN))
    if report is not None:
        try:
            found.save(report)
        except OSError as error:
            console.fail(f"{report}: cannot be written: {error}")
        print(f"report: {report}")
