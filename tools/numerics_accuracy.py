"""Writes the accuracies of ``examples/numerics_training.py`` into docs/numerics.md.

python -m tools.numerics_accuracy
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tools.blocks import replace_block

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "numerics.md"
EXAMPLE = ROOT / "examples" / "numerics_training.py"
EPOCHS = 4  # float32 has learnt half of the digits by then, so that formats differ


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def body(reached: dict[str, float]) -> str:
    """The sentence of the page."""
    told = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in reached.items())
    return (
        f"`python examples/numerics_training.py --epochs {EPOCHS}` trains the demo's vision transformer in "
        f"each block format and prints the accuracy that it reaches; chance is 0.1: {told}."
    )


def table_of_sums(reached: list[tuple[str, str, float]]) -> str:
    """The table of Bfp8_b by mode and format of sums."""
    lines = [
        f"`python examples/numerics_training.py --epochs {EPOCHS} --silicon` trains it in Bfp8_b in both "
        "modes, with sums of 16 bits and of float32:",
        "",
        "| sums | fast | silicon |",
        "| --- | --- | --- |",
    ]
    found = {(mode, sums): accuracy for mode, sums, accuracy in reached}
    for sums in dict.fromkeys(sums for _, sums, _ in reached):
        lines.append(f"| {sums} | {found['fast', sums]:.3f} | {found['silicon', sums]:.3f} |")
    return "\n".join(lines)


def main() -> None:
    reached = {}
    for name, accuracy in example().accuracies(EPOCHS):
        reached[name] = accuracy
        print(name, accuracy, flush=True)
    sums = []
    for mode, accumulate, accuracy in example().accuracies_of_sums(EPOCHS):
        sums.append((mode, accumulate.name, accuracy))
        print(*sums[-1], flush=True)
    page = replace_block(PAGE.read_text(), "accuracies", body(reached))
    PAGE.write_text(replace_block(page, "accuracies of sums", table_of_sums(sums)))


if __name__ == "__main__":
    main()
