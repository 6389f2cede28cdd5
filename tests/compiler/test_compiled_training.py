"""Compiled by Inductor, modules give the results, gradients and dropout of eager mode: under each name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "compiled_training"

pytestmark = pytest.mark.slow


# What the name decides, the interface of the device and its registration, all programs share.
CASES = [
    *(("cuda", program) for program in ("attention", "calls", "recurrent", "layers", "optimizers", "modes")),
    *(("loom", "attention"), ("rbln", "layers")),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "program"), CASES)
def test_as_in_eager_mode(warm_python: PythonRunner, name: str, program: str) -> None:
    settings = {"TORCH_LOOM_DEVICE_NAME": name}
    warm_python(PROGRAMS / f"{program}.py", settings, given=name, limit_s=280)
