"""Launch modes and fenced memory from Python, and processes that end or fork with workers about."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract import Chip, Log
from torch_loom._C_testing import driver

WORK_ON_A_SIDE_STREAM = """
import os
import torch
from torch_loom._C_testing import driver
chip = driver.create("virtual", 1, 1 << 24)
stream, ran = chip.create_stream(0, 0, False), []
chip.submit(stream, lambda: ran.append(1))
chip.synchronize_stream(stream)
assert ran == [1]
"""


def order(seed: int) -> list[object]:
    chip = driver.create("virtual", 1, 1 << 24, driver.Launch.CHAOS, chaos_seed=seed)
    streams = [chip.create_stream(0, 0, inline) for inline in (True, False, False)]
    ran: list[object] = []
    for number in range(20):
        for index, stream in enumerate(streams):
            chip.submit(stream, lambda index=index, number=number: ran.append((index, number)))
    for stream in streams:
        chip.synchronize_stream(stream)
    return ran


def test_chaos_is_drawn_from_its_seed() -> None:
    orders = [order(seed) for seed in range(10)]
    assert orders == [order(seed) for seed in range(10)]
    assert len({str(each) for each in orders}) > 5
    for ran in orders:
        for index in range(3):
            assert [number for stream, number in ran if stream == index] == list(range(20))


def test_blocking_runs_here() -> None:
    chip = Chip("virtual", launch=driver.Launch.BLOCKING)
    stream, log = chip.driver.create_stream(0, 0, False), Log()
    assert chip.driver.runs_in_place(stream)
    with pytest.raises(KeyError, match="here"):
        log.submit(chip, stream, "fails", KeyError("here"))
    log.submit(chip, stream, "behind")
    assert log.ran == ["fails", "behind"]


@pytest.mark.parametrize(
    "end",
    [
        "import builtins; builtins.kept = (chip, stream)",
        pytest.param("", marks=pytest.mark.slow),
        pytest.param("chip.submit(stream, lambda: ran.append(2))", marks=pytest.mark.slow),
    ],
    ids=["kept", "dropped", "pending"],
)
def test_a_process_ends_with_its_workers_asleep(warm_python: Callable[..., object], end: str) -> None:
    warm_python(WORK_ON_A_SIDE_STREAM + end)


@pytest.mark.slow
def test_a_forked_child_ends(warm_python: Callable[..., object]) -> None:
    warm_python(
        WORK_ON_A_SIDE_STREAM
        + """
child = os.fork()
if child == 0:
    del chip, stream
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    )


def test_a_host_access_to_fenced_memory_faults(warm_python: Callable[..., object]) -> None:
    done = warm_python(
        """
        import ctypes
        import torch
        from torch_loom._C_testing import driver
        chip = driver.create("virtual", 1, 1 << 24, protect=True)
        address = chip.allocate(0, 64)
        ctypes.memset(chip.locate(address).engine_address, 1, 64)
        print("reached", flush=True)
        ctypes.memset(address, 1, 64)
        """,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-11, "reached\n")
