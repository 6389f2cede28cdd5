"""``--loom-budget FILE``: device time and peak memory of each test, beside those that the file has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_KEY = "torch_loom_budget"
_MAX_FILE_BYTES = 64 << 20
_MOST_SHOWN = 20


class Cost(NamedTuple):
    """What a test's body took: seconds by the chip's cost model, bytes at the peak above what was there."""

    seconds: float
    peak_bytes: int


def add_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--loom-budget",
        metavar="FILE",
        type=Path,
        help="Compare each test's device time and peak memory with FILE (.json); without one, write it.",
    )
    group.addoption(
        "--loom-budget-update",
        action="store_true",
        help="Write what was measured to that file.",
    )
    group.addoption(
        "--loom-budget-tolerance",
        type=float,
        metavar="SHARE",
        help="How much more than the file says is no failure. [default: 0.02]",
    )


def plugin(config: pytest.Config) -> Budget | None:
    """Return what measures tests; None without the option.

    Raises:
        pytest.UsageError: the file is not one that this option writes, or the tolerance is below 0.
    """
    option = config.option
    if option.loom_budget is None:
        if option.loom_budget_update or option.loom_budget_tolerance is not None:
            raise pytest.UsageError(
                "--loom-budget-update and --loom-budget-tolerance need --loom-budget FILE"
            )
        return None
    tolerance = 0.02 if option.loom_budget_tolerance is None else option.loom_budget_tolerance
    if not 0 <= tolerance < float("inf"):
        raise pytest.UsageError(f"--loom-budget-tolerance {tolerance}: the share is a number from 0")
    path = option.loom_budget
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise pytest.UsageError(f"--loom-budget {path}: not a place for a file of budgets (.json)")
    baseline = None if option.loom_budget_update or not path.exists() else _read(path)
    is_worker = hasattr(config, "workerinput")
    return Budget(path, baseline, tolerance, is_writer=not is_worker)


class Budget:
    """Measures the bodies of tests; fails the session where one takes more than the file says."""

    def __init__(
        self, path: Path, baseline: dict[str, Cost] | None, tolerance: float, is_writer: bool
    ) -> None:
        self._path = path
        self._baseline = baseline
        self._tolerance = tolerance
        self._is_writer = is_writer
        self._found: dict[str, Cost] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[Any]:
        with _Measured() as measured:
            result = yield
        item.user_properties.append((_KEY, tuple(measured.cost)))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            measured: Any = dict(report.user_properties).get(_KEY)
            if measured is not None:
                self._found[report.nodeid] = Cost(float(measured[0]), int(measured[1]))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if not self._is_writer:
            return
        if self._baseline is None:
            _write(self._path, self._found)
        elif exitstatus == pytest.ExitCode.OK and self._exceeding():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._baseline is None:
            budgets = "1 budget" if len(self._found) == 1 else f"{len(self._found)} budgets"
            terminalreporter.write_line(f"torch-loom: {budgets} written to {self._path}")
            return
        changed = [name for name, cost in self._found.items() if self._is_changed(name, cost)]
        new = len(self._found.keys() - self._baseline.keys())
        terminalreporter.section("torch-loom: budgets", sep="-")
        if changed:
            terminalreporter.write_line(f"      {'time':>24}  {'peak memory':>28}  test")
        exceeding = self._exceeding()
        for name in sorted(changed, key=lambda name: (name not in exceeding, name))[:_MOST_SHOWN]:
            before, now = self._baseline[name], self._found[name]
            verdict = "OVER" if name in exceeding else ""
            line = f"{verdict:4}  {_time(before, now):>24}  {_memory(before, now):>28}  {name}"
            terminalreporter.write_line(line, red=name in exceeding, green=name not in exceeding)
        if len(changed) > _MOST_SHOWN:
            terminalreporter.write_line(f"and {len(changed) - _MOST_SHOWN} more")
        terminalreporter.write_line(
            f"{len(exceeding)} over budget by more than {self._tolerance:.0%}, "
            f"{len(changed) - len(exceeding)} changed otherwise, {len(self._found) - len(changed) - new} as "
            f"before, {new} without a budget; --loom-budget-update accepts what was measured"
        )

    def _is_changed(self, name: str, cost: Cost) -> bool:
        before = (self._baseline or {}).get(name)
        return before is not None and _shown(before) != _shown(cost)

    def _exceeding(self) -> set[str]:
        limit = 1 + self._tolerance
        return {
            name
            for name, cost in self._found.items()
            if (before := (self._baseline or {}).get(name)) is not None
            and (cost.seconds > before.seconds * limit or cost.peak_bytes > before.peak_bytes * limit)
        }


class _Measured:
    """Measures a block, over all devices that are in use when it ends."""

    def __enter__(self) -> _Measured:
        self.cost = Cost(0.0, 0)
        self._began, self._bytes = _state(begins=True)
        return self

    def __exit__(self, *_: object) -> None:
        ended, peaks = _state(begins=False)
        taken = sum(peak - self._bytes.get(index, 0) for index, peak in peaks.items())
        self.cost = Cost(round(max(ended - self._began, 0.0), 9), max(taken, 0))


def _state(begins: bool) -> tuple[float, dict[int, int]]:
    """Return the devices' time in seconds, and the bytes in use on each, or at the peak since the begin."""
    if "torch" not in sys.modules:
        return 0.0, {}
    from torch_loom import _C
    from torch_loom.device._core import clock
    from torch_loom.device.memory import stats

    if not _C.is_initialized():
        return 0.0, {}
    now, used = clock.clock(), {}
    indices = [index for index in range(_C.device_count()) if _C.device_has_context(index)]
    for index in indices:
        _C.synchronize(index)
        now = max(now, clock.clock(index))
    if begins:
        # A test that comes first takes them, and others would not.
        _C.clear_workspaces()
    for index in indices:
        if begins:
            stats.reset_peak_memory_stats(index)
        used[index] = stats.max_memory_allocated(index)
    return now, used


def _shown(cost: Cost) -> tuple[str, int]:
    return f"{cost.seconds * 1e6:.1f}", cost.peak_bytes


def _time(before: Cost, now: Cost) -> str:
    return f"{before.seconds * 1e6:.1f} → {now.seconds * 1e6:.1f} µs"


def _memory(before: Cost, now: Cost) -> str:
    return f"{before.peak_bytes} → {now.peak_bytes} bytes"


def _read(path: Path) -> dict[str, Cost]:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError(f"it has more than {_MAX_FILE_BYTES} bytes")
        tests = json.loads(path.read_text(encoding="utf-8"))["tests"]
        return {
            str(name): Cost(float(cost["seconds"]), int(cost["peak_bytes"])) for name, cost in tests.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise pytest.UsageError(
            f"--loom-budget {path}: not a file that this option writes ({type(error).__name__}: {error}). "
            "Remove it, or write it again with --loom-budget-update."
        ) from error


def _write(path: Path, found: dict[str, Cost]) -> None:
    from torch_loom.config.files import whole_file

    tests = {name: found[name]._asdict() for name in sorted(found)}
    try:
        with whole_file(path) as unfinished:
            unfinished.write_text(json.dumps({"tests": tests}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise pytest.UsageError(f"--loom-budget {path} cannot be written: {error}") from error
