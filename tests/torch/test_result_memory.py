"""Results that the device has no memory for: refused before the host computes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "result_memory"


@pytest.mark.long
def test_what_does_not_fit_is_refused_before_it_is_computed(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAMS / "what_does_not_fit_is_refused_before_it_is_computed.py", {"TORCH_LOOM_MEMORY": "2GiB"}
    )


@pytest.mark.long
def test_scratch_is_the_hosts_however_large(warm_python: PythonRunner) -> None:
    """A kernel of the host's unfolds what a chip's does not."""
    warm_python(PROGRAMS / "scratch_is_the_hosts_however_large.py", {"TORCH_LOOM_MEMORY": "66MiB"})


def test_results_of_new_shapes_take_the_memory_of_known_ones(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "results_of_new_shapes_take_the_memory_of_known_ones.py")
