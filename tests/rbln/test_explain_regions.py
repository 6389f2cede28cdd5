"""torch.rbln.explain: regions of a program, and what changed between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import EAGER, NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.explain", "torch.rbln.profile", "torch.rbln.RBLNProfile")
@pytest.mark.exercises(
    "torch.rbln.RBLNExplain", "torch.rbln.RBLNExplain.start", "torch.rbln.RBLNExplain.stop"
)
@pytest.mark.exercises("torch.rbln.RBLNExplain.dump", "torch.rbln.RBLNExplain.verdict")
@pytest.mark.exercises("torch.rbln.RBLNExplain.report", "torch.rbln.RBLNExplain.help")
@pytest.mark.exercises("torch.rbln.RBLNExplain.diff", "torch.rbln.RBLNDiff", "torch.rbln.RBLNDiff.dump")
@pytest.mark.exercises("torch.rbln.RBLNDiff.report")
def test_a_region(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "explain.py", EAGER)


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.explain_steady")
def test_the_first_call_and_a_later_one(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "explain_steady.py", NAME)


def test_tensors_that_wait_on_the_host(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "explain_lazy.py", NAME)
