"""The backend of torch.distributed: values, and which calls are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
SETTINGS = {"TORCH_LOOM_DEVICES": "3", "TORCH_LOOM_MEMORY": "1GiB", "OMP_NUM_THREADS": "1"}


@pytest.mark.long
@pytest.mark.parametrize("launch", ["auto", "blocking"])
@pytest.mark.parametrize("size", [2, 3])
def test_values(fork_loom: PythonRunner, size: int, launch: str) -> None:
    settings = {**SETTINGS, "TORCH_LOOM_LAUNCH": launch}
    fork_loom(PROGRAMS / "collectives.py", settings, given=("loom", size))


@pytest.mark.long
def test_values_under_the_name_cuda(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "collectives.py", SETTINGS, given=("cuda", 2))


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        "shape",
        "dtype",
        "root",
        "reduction",
        "order",
        "message",
        "split",
        "missing",
        "store",
        "abort",
        "killed",
    ],
)
def test_wrong_use_raises_on_all_ranks(fork_loom: PythonRunner, kind: str) -> None:
    fork_loom(PROGRAMS / "wrong_use.py", SETTINGS, given=(kind, False))


@pytest.mark.long
@pytest.mark.parametrize("machines", [(0, 1), (0, 0, 1), (1, 0, 2)], ids=str)
def test_values_between_machines(fork_loom: PythonRunner, machines: tuple[int, ...]) -> None:
    result = fork_loom(PROGRAMS / "collectives.py", SETTINGS, given=("loom", len(machines), *machines))
    if "no right" in result.stdout:
        pytest.skip("no right to make namespaces of processes")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shape", "message", "killed", "abort"])
def test_wrong_use_between_machines(fork_loom: PythonRunner, kind: str) -> None:
    fork_loom(PROGRAMS / "wrong_use.py", SETTINGS, given=(kind, True))


@pytest.mark.long
def test_as_nccl_ranks_wait_and_end(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "watchdog.py", {**SETTINGS, "TORCH_LOOM_COLLECTIVES": "nccl"})


@pytest.mark.long
def test_the_reader_of_flight_recorders_finds_what_differs(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "flight_recorder.py", SETTINGS)


@pytest.mark.long
def test_waits_that_block_raise(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "blocking_wait.py", SETTINGS)


@pytest.mark.parametrize(
    "kind", ["times", "results", "hooks", "first_call", "float8", "variables", "graphs", "late", "asserts"]
)
def test_works_are_as_of_nccl(fork_cuda: PythonRunner, kind: str) -> None:
    fork_cuda(PROGRAMS / "nccl_works.py", SETTINGS, given=kind)


def test_groups_are_made_as_of_nccl(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "nccl_constructor.py", SETTINGS)


def test_a_group_that_was_shut_down_refuses(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "after_shutdown.py", SETTINGS)


def test_numbers_that_are_nan_are_refused(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "nan_check.py", SETTINGS)


@pytest.mark.long
def test_ranks_that_the_system_cannot_watch(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "unwatchable_ranks.py", SETTINGS)
