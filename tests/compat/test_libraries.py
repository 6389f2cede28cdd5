"""Libraries that know devices by a list of names, under the name loom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "libraries"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["no float32", "bf16 bfloat16", "fp16 float16"])
def test_accelerate(run_python: PythonRunner, precision: str) -> None:
    run_python(PROGRAMS / "trains_with_accelerate.py", given=precision)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true float32", "bf16-mixed bfloat16", "16-mixed float16"])
def test_lightning(run_python: PythonRunner, precision: str) -> None:
    run_python(PROGRAMS / "trains_with_lightning.py", given=precision)


@pytest.mark.slow
def test_the_cpu_stays_a_choice(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "the_cpu_stays_a_choice.py")


@pytest.mark.slow
def test_transformers(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "arguments_of_transformers.py")


@pytest.mark.slow
def test_safetensors(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "files_of_safetensors.py")


@pytest.mark.slow
def test_libraries_stay_as_they_are(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "libraries_stay_as_they_are.py", {"TORCH_LOOM_LIBRARIES": "0"})
