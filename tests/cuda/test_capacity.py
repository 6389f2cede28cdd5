"""How much memory a card has: what nvidia-smi shows, what CUDA reports, and what tensors can have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAM = Path(__file__).parent / "programs" / "capacity" / "what_a_card_reports_and_has.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "total_mib", "context_mib", "driver_mib"),
    [
        ({"TORCH_LOOM_CHIP": "t4"}, 15360 - 451, 143, 451),  # 14.56 GiB, as in PyTorch's messages on a T4
        ({"TORCH_LOOM_CHIP": "rtx4090"}, 24564 - 480, 470, 480),
        ({"TORCH_LOOM_CHIP": "p100"}, 16276, 0, 0),  # nothing is known of it
        ({"TORCH_LOOM_CHIP": "t4", "TORCH_LOOM_MEMORY": "8GiB"}, 8192, 0, 0),  # the program's alone
        ({"TORCH_LOOM_CHIP": "t4", "TORCH_LOOM_MEMORY": "14909MiB"}, 15360 - 451, 0, 0),  # however much it is
    ],
)
def test_what_a_card_reports_and_has(
    run_python: PythonRunner, settings: dict[str, str], total_mib: int, context_mib: int, driver_mib: int
) -> None:
    given = (total_mib, context_mib, driver_mib)
    alone = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MACHINE": f"capacity_{os.getpid()}"}
    run_python(PROGRAM, {**alone, **settings}, given=given)
