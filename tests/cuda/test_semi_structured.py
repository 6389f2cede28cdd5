"""Products with 2:4 matrices: CUTLASS's on Ampere, cuSPARSELt's on it and later, and what each refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "semi_structured"


def environment(chip: str) -> dict[str, str]:
    return {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_CHIP": chip}


@pytest.mark.long
def test_cutlass_on_ampere(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "cutlass_on_ampere.py", environment("a100"), is_autoloading=True)


@pytest.mark.long
@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_cusparselt(fork_python: PythonRunner, chip: str) -> None:
    """The default way of ``to_sparse_semi_structured``."""
    fork_python(PROGRAMS / "cusparselt.py", environment(chip), is_autoloading=True)


@pytest.mark.long
def test_cutlass_is_refused_by_later_cards(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "cutlass_is_refused_by_later_cards.py", environment("h200"), is_autoloading=True)


def test_how_tiles_are_pruned(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "how_tiles_are_pruned.py", environment("h200"), is_autoloading=True)
