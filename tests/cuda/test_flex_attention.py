"""``torch.compile(flex_attention)`` under CUDA's name, where programs take it for granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "flex_attention"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["plain", "tilted", "grouped", "replayed"])
def test_compiled_calls_agree_with_eager_ones(warm_python: PythonRunner, call: str) -> None:
    env = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
    warm_python(PROGRAMS / "compiled_calls.py", env, given=call)
