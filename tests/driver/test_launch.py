"""Launch modes and fenced memory from Python, and processes that end or fork with workers about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from contract import Chip, Log
from torch_loom._C_testing import driver

PROGRAMS = Path(__file__).parent / "programs" / "launch"


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
        "kept",
        pytest.param("dropped", marks=pytest.mark.slow),
        pytest.param("pending", marks=pytest.mark.slow),
    ],
)
@pytest.mark.long
def test_a_process_ends_with_its_workers_asleep(warm_python: Callable[..., object], end: str) -> None:
    warm_python(PROGRAMS / "work_on_a_side_stream.py", given=end)


@pytest.mark.slow
def test_a_forked_child_ends(warm_python: Callable[..., object]) -> None:
    warm_python(PROGRAMS / "work_on_a_side_stream.py", given="forked")


def test_a_host_access_to_fenced_memory_faults(warm_python: Callable[..., object]) -> None:
    done = warm_python(PROGRAMS / "a_host_access_to_fenced_memory_faults.py", check=False)
    assert (done.returncode, done.stdout) == (-11, "reached\n")
