"""Calls on dtypes that CUDA has kernels for and the CPU has not are computed in wider ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "widening"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
PROGRAM = Path(__file__).with_name("widening.py")


@pytest.mark.slow
def test_the_table_has_what_only_cuda_takes(run_python: PythonRunner) -> None:
    done = run_python("from tests.cuda.widening import main; main()", NAME)
    agreed, ops = map(int, done.stdout.split())
    assert agreed > 100
    assert ops > 45


@pytest.mark.long
def test_calls_on_dtypes_that_the_cpu_lacks(fork_python: PythonRunner) -> None:
    """In place, with `out=`, with gradients, captured, and in dtypes that depend."""
    fork_python(PROGRAMS / "calls_on_dtypes_that_the_cpu_lacks.py", NAME)


def test_every_name_widens(fork_python: PythonRunner) -> None:
    """Libraries take a device that is not the CPU for one like CUDA: mixtures of experts count in int32."""
    fork_python(PROGRAMS / "every_name_widens.py")


@pytest.mark.long
def test_products_of_half_precision(fork_python: PythonRunner) -> None:
    """Sums in float32 that are rounded once, as on a GPU, whatever the processor's own kernels do."""
    fork_python(PROGRAMS / "products_of_half_precision.py", {"TORCH_LOOM_MEMORY": "2GiB"})


@pytest.mark.long
def test_sparse_operands_of_half_precision(fork_python: PythonRunner) -> None:
    """Sums and products of sparse matrices, which the engine has in float32 only."""
    fork_python(PROGRAMS / "sparse_operands_of_half_precision.py", NAME)
