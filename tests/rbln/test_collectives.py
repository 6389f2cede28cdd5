"""The backend rbln-ccl of torch.distributed, with and without TORCH_RBLN_C10D_ASYNC."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"


@pytest.mark.slow
@pytest.mark.parametrize("is_async", ["0", "1"])
def test_two_ranks(run_python: PythonRunner, tmp_path: Path, is_async: str) -> None:
    env = {**NAME, "TORCH_RBLN_C10D_ASYNC": is_async, "OMP_NUM_THREADS": "1"}
    run_python(PROGRAMS / "collectives.py", env, given=str(tmp_path / "store"))


@pytest.mark.long
@pytest.mark.parametrize("is_async", ["0", "1"])
def test_one_rank(warm_python: PythonRunner, tmp_path: Path, is_async: str) -> None:
    env = {**NAME, "TORCH_RBLN_C10D_ASYNC": is_async}
    warm_python(PROGRAMS / "one_rank.py", env, given=str(tmp_path / "store"))
