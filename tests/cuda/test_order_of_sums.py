"""Sums by atomic additions: under chaos their order is another in each call, by the seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAM = Path(__file__).parent / "programs" / "sums_by_atomics.py"


def patterns(fork_cuda: PythonRunner, **env: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = json.loads(fork_cuda(PROGRAM, env).stdout)
    return found


def test_chaos_adds_in_another_order_in_each_call(fork_cuda: PythonRunner) -> None:
    chaos = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": "3"}
    first = patterns(fork_cuda, **chaos)
    assert all(any(result != results[0] for result in results) for results in first.values()), first
    assert patterns(fork_cuda, **chaos) == first
    assert patterns(fork_cuda, **{**chaos, "TORCH_LOOM_CHAOS_SEED": "4"}) != first


@pytest.mark.parametrize("launch", ["auto", "blocking"])
def test_other_modes_repeat_their_sums(fork_cuda: PythonRunner, launch: str) -> None:
    found = patterns(fork_cuda, TORCH_LOOM_LAUNCH=launch)
    assert all(result == results[0] for results in found.values() for result in results)
