"""Telemetry: of this process, of others, and of files that are not what they seem."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import torch
from torch_loom._C_testing import activity as pages

import torch_loom.device as loom
from tests.conftest import PythonRunner
from torch_loom import _C, chips
from torch_loom.device import telemetry
from torch_loom.device.telemetry import activity
from torch_loom.errors import ChipError, InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "telemetry"

MIB = 1 << 20


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes of this user may be using devices, too, and so may streams of earlier tests."""
    loom.init()
    for device in range(loom.device_count()):
        loom.synchronize(device)
    monkeypatch.setattr(activity, "_machine", activity.ALONE)
    monkeypatch.setattr(activity, "_failure", None)


class FakeClock:
    """Looks at what was measured as if it were later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later_seconds = 0.0
        self._stopped_at: int | None = None
        self._real = _C.clock_ticks

        def ticks() -> tuple[int, float]:
            now, per_second = self._real()
            return (self._stopped_at or now) + int(self.later_seconds * per_second), per_second

        monkeypatch.setattr(_C, "clock_ticks", ticks)

    def stop_when(self, work: Callable[[], object], reached: Callable[[], bool]) -> None:
        """Repeat the work until that holds. From here on each look is at that moment, however long this
        process waits for a processor between two looks."""
        deadline = time.monotonic() + 30
        while self._stopped_at is None:
            for _ in range(200):
                work()
            self._stopped_at, _ = self._real()
            if not reached():
                self._stopped_at = None
                assert time.monotonic() < deadline


def busy_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock that stands where the device is busy for two fifths of the time, or more."""
    clock, x = FakeClock(monkeypatch), torch.ones(1 << 18, device="loom")
    clock.stop_when(lambda: x.mul_(1.0), lambda: loom.utilization() >= 40)
    return clock


@pytest.mark.exercises(
    "torch.cuda.utilization",
    "torch.cuda.memory_usage",
    "torch.cuda.power_draw",
    "torch.cuda.temperature",
    "torch.cuda.clock_rate",
)
def test_a_busy_device_and_an_idle_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = chips.load("loom1")
    busy_clock(monkeypatch)
    assert 40 <= loom.utilization() <= loom.memory_usage() <= 100
    for share in (0.0, 0.25, 1.0):
        monkeypatch.setattr(telemetry.activity, "busy_share", lambda _physical, share=share: (share, share))
        watts = chip.power_idle_watts + share * (chip.power_max_watts - chip.power_idle_watts)
        assert loom.power_draw() == round(1000 * watts)
        degrees = chip.temperature_max_celsius - chip.temperature_idle_celsius
        assert loom.temperature() == round(chip.temperature_idle_celsius + share * degrees)
        assert loom.clock_rate() == (chip.clock_mhz if share else chip.clock_idle_mhz)
    monkeypatch.undo()
    monkeypatch.setattr(activity, "_machine", activity.ALONE)
    clock = busy_clock(monkeypatch)
    busy = loom.power_draw()
    assert 1000 * chip.power_idle_watts < busy <= 1000 * chip.power_max_watts
    clock.later_seconds = 2.0
    assert (loom.utilization(), loom.memory_usage()) == (0, 0)
    assert loom.power_draw() == 1000 * chip.power_idle_watts
    assert loom.temperature() == chip.temperature_idle_celsius
    assert loom.clock_rate() == chip.clock_idle_mhz


@pytest.mark.exercises("torch.cuda.utilization", "torch.cuda.memory_usage")
def test_copies_use_memory_and_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = torch.ones(1 << 20), torch.empty(1 << 20, device="loom:1")
    clock = FakeClock(monkeypatch)
    clock.later_seconds = 2.0
    before = loom.utilization(1)
    clock.later_seconds = 0.0
    clock.stop_when(lambda: target.copy_(source), lambda: loom.memory_usage("loom:1") >= 20)
    assert before == 0
    assert loom.utilization(1) < loom.memory_usage(1)


@pytest.mark.exercises("torch.cuda._sleep", "torch.cuda.utilization")
def test_what_runs_still_counts() -> None:
    stream = loom.Stream()
    with loom.stream(stream):
        loom._sleep(400_000_000)
    deadline = time.monotonic() + 20
    while loom.utilization() < 20:
        assert not stream.query(), "it ran and did not count"
        assert time.monotonic() < deadline
    stream.synchronize()
    assert loom.utilization() >= 20


def test_shares_of_overlapping_streams() -> None:
    shift, length = 10, 1 << 10
    now = 100 * length

    def stream(kernels: dict[int, int], copies: dict[int, int], began: int = 0) -> list[int]:
        words = [began, *[0] * 7, *[0] * 128]
        for kind, spent in enumerate((kernels, copies)):
            for number, ticks in spent.items():
                words[8 + 64 * kind + number % 64] = number << 32 | ticks
        return words

    def share(*streams: list[int]) -> tuple[float, float]:
        found: tuple[float, float] = pages.busy_share(list(streams), shift, now, 10 * length)
        return found

    half = stream(dict.fromkeys(range(90, 100), length // 2), {})
    assert share(half) == pytest.approx((0.5, 0.5))
    assert share(half, half) == pytest.approx((0.75, 0.75))
    assert share(stream({}, {95: length})) == pytest.approx((0.0, 0.1))
    assert share(stream({95: length}, {}), stream({95: length}, {})) == pytest.approx((0.1, 0.1))
    assert share(stream({}, {}, began=97 * length)) == pytest.approx((0.3, 0.3))
    assert share(stream({}, {}, began=50 * length)) == pytest.approx((1.0, 1.0))
    # Older than the window, and older by a whole turn of the buckets.
    assert share(stream({80: length}, {}), stream({95 - 64: length}, {})) == (0.0, 0.0)


@pytest.mark.exercises(
    "torch.cuda.list_gpu_processes",
    "torch.cuda.memory.list_gpu_processes",
    "torch.cuda.device_memory_used",
    "torch.cuda.memory.empty_cache",
)
def test_own_memory() -> None:
    # The figure is published when a segment comes or goes; allocators of other tests' own may hold some.
    torch.empty(48 * MIB, dtype=torch.uint8, device="loom:1")
    loom.empty_cache("loom:1")
    before, reserved = loom.device_memory_used(1), loom.memory_reserved(1)
    kept = torch.empty(48 * MIB, dtype=torch.uint8, device="loom:1")
    assert loom.device_memory_used("loom:1") == before + 48 * MIB
    assert loom.memory_reserved(1) == reserved + 48 * MIB
    lines = loom.list_gpu_processes(1).splitlines()
    assert lines[0] == "LOOM:1"
    match = re.fullmatch(r"process +(\d+) uses +([\d.]+) MB loom memory", lines[1])
    assert match is not None
    assert (int(match[1]), float(match[2])) == (os.getpid(), (before + 48 * MIB) / MIB)
    del kept
    loom.empty_cache(1)
    assert loom.device_memory_used(1) == before


@pytest.mark.parametrize(
    "figure", [getattr(telemetry, name) for name in telemetry.__all__], ids=telemetry.__all__
)
def test_a_device_that_is_not_there(figure: object) -> None:
    assert callable(figure)
    for bad in (7, -1):
        with pytest.raises(InvalidDeviceError, match="Invalid device index"):
            figure(bad)


def test_a_chip_without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_chip_figures", lambda index: dict.fromkeys(vars(chips.load("loom1")), 0))
    for figure in (loom.power_draw, loom.temperature, loom.clock_rate):
        with pytest.raises(ChipError, match=r"has no '\w+' in its description"):
            figure()


# --- other processes ---


def shared_files(machine: str) -> list[str]:
    """Names of the files that this test's processes share: other runs of this file have other machines."""
    return [name for name in os.listdir("/dev/shm") if f"-{machine}-" in name]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"telemetry_test_{os.getpid()}"
    monkeypatch.setattr(activity, "_machine", name)
    yield name
    activity.processes(0)
    assert not shared_files(name)


def read_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@pytest.mark.slow
@pytest.mark.exercises(
    "torch.cuda.list_gpu_processes", "torch.cuda.device_memory_used", "torch.cuda.utilization"
)
def test_another_process_is_seen_until_it_is_killed(machine: str) -> None:
    own = loom.device_memory_used(1)
    free = loom.mem_get_info(1)
    environment = {**os.environ, "TORCH_LOOM_MACHINE": machine}
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "busy_child.py")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert read_line(child.stdout) == "busy\n"
        assert loom.device_memory_used(1) - own == 64 * MIB
        assert re.search(rf"process +{child.pid} uses +64.000 MB", loom.list_gpu_processes(1))
        assert str(child.pid) not in loom.list_gpu_processes(0)
        assert loom.utilization(1) > 0
        assert loom.mem_get_info(1) == free  # each process has a capacity of its own
        assert len(shared_files(machine)) == 1
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert loom.device_memory_used(1) == own
    assert str(child.pid) not in loom.list_gpu_processes(1)
    assert not shared_files(machine)


def test_a_process_that_ends_leaves_nothing(machine: str, fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_process_that_ends_leaves_nothing.py", {"TORCH_LOOM_MACHINE": machine})


@pytest.mark.parametrize("how", ["missing", "full"])
def test_without_shared_memory(how: str, fork_loom: PythonRunner, tmp_path: Path) -> None:
    done = fork_loom(
        PROGRAMS / "without_shared_memory.py",
        given=(str(tmp_path / "missing" if how == "missing" else tmp_path), how),
    )
    assert done.stderr.count("Other processes that use the devices cannot be seen") == 1
    assert not list(tmp_path.iterdir())


def test_left_over_and_broken_files(machine: str) -> None:
    prefix = f"torch-loom-{os.geteuid()}-{machine}-"
    before = loom.device_memory_used(0)
    good = _C.activity()
    contents = [b"", b"x" * 5000, good[:5000], good.replace(b"LOOMACT", b"LOOMOLD"), good]
    for number, content in enumerate(contents):
        Path("/dev/shm", f"{prefix}{number}").write_bytes(content)
    Path("/dev/shm", f"{prefix}link").symlink_to("/etc/passwd")
    os.mkfifo(f"/dev/shm/{prefix}pipe")
    # Nobody holds them: none counts, those that are files are removed, the others are left alone.
    assert loom.device_memory_used(0) == before
    assert sorted(shared_files(machine)) == [f"{prefix}link", f"{prefix}pipe"]
    for name in shared_files(machine):
        os.unlink(f"/dev/shm/{name}")


def test_what_others_write_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    good = bytearray(_C.activity())
    pid = os.getpid()
    parsed = pages.parse(bytes(good), pid)
    assert [(each.pid, each.physical) for each in parsed] == [(pid, 0), (pid, 1)]
    assert pages.parse(bytes(good), pid + 1) == []  # a forked child's view of its parent's
    for offset, value in ((8, 1), (16, 65), (20, 257), (24, 63), (28, 7), (28, 32)):
        bad = good.copy()
        bad[offset : offset + 4] = value.to_bytes(4, sys.byteorder)
        assert pages.parse(bytes(bad), pid) == [], (offset, value)
    for figure in (72, 80):  # memory that is taken, and all of it
        bad = good.copy()
        bad[figure : figure + 8] = (1 << 60).to_bytes(8, sys.byteorder)
        assert [each.physical for each in pages.parse(bytes(bad), pid)] == [1]
    bad = good.copy()
    bad[88:120] = b"\xff" * 32
    assert pages.parse(bytes(bad), pid)[0].chip == b"\xff" * 32
    monkeypatch.setattr(_C, "activity_processes", lambda _: [(0, pid, 1, 1, b"\xff" * 32)])
    assert activity.processes(0)[0].chip == "\ufffd" * 32
    # Nonsense in the buckets stays between 0 and 100 percent.
    bad = good.copy()
    bad[4096:] = b"\xff" * (len(bad) - 4096)
    now, _ = _C.clock_ticks()
    share = pages.parse(bytes(bad), pid)[0].busy_share(now)
    assert all(0 <= each <= 1 for each in share)
