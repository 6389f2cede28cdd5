"""Blocks that kernels multiply under ``TORCH_LOOM_MATMUL=tensor_core``, bit for bit as an H100 gave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

FOLDER = Path(__file__).parent
MEASURED = json.loads((FOLDER / "card_blocks.json").read_text(encoding="utf-8"))["results"]


@pytest.mark.long
def test_blocks_are_multiplied_as_on_the_card(warm_python: PythonRunner) -> None:
    """Of each format: one instruction and several, of one warp and of a group; chains; TF32 in parts."""
    env = {
        "TORCH_LOOM_DEVICE_NAME": "cuda",
        "TORCH_LOOM_CHIP": "h100",
        "TORCH_LOOM_MATMUL": "tensor_core",
    }
    done = warm_python(FOLDER / "programs" / "card_blocks.py", env)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == MEASURED.keys()
    assert {name for name, digest in found.items() if digest != MEASURED[name]} == set()
