"""The workers: an op that crashes or hangs is a failure of that op, and the run goes on."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from . import runner
from .model import Case, CaseResult, Tally
from .runner import run_cases
from .worker import Order, Setup, write_position

pytestmark = [pytest.mark.conformance, pytest.mark.sample]

CASES = [Case("ops", name, "float32") for name in ("abs", "add", "acos")]


def fragile_worker(connection: Connection, position: Any, setup: Setup) -> None:
    """Has two samples per case; dies or hangs, as `setup.device` says, at the second one of `add`."""
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        tally = Tally()
        for sample in ("0", "1"):
            if ("forward", sample) in order.skip:
                continue
            write_position(position, "forward", sample)
            if order.case.op == "add" and sample == "1":
                if setup.device == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            tally.identical += 1
        connection.send(CaseResult(order.case, {"forward": tally}))


@pytest.mark.parametrize("fault", ["dies", "hangs"])
def test_crash_is_blamed_on_the_sample_and_the_rest_is_run(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TIMEOUT_SECONDS", 3.0)
    seen: list[CaseResult] = []
    setup = Setup(fault, ("forward",), os.devnull)
    results = run_cases(CASES, setup, 2, seen.append, target=fragile_worker)
    assert [result.case for result in results] == CASES
    assert len(seen) == len(CASES)
    assert [result.tallies["forward"].passed for result in results] == [2, 1, 2]
    (failure,) = results[1].tallies["forward"].failures
    assert failure.sample == "1"
    assert ("SIGKILL" if fault == "dies" else "still running after 3 s") in failure.message


def test_log_of_a_worker_that_cannot_start_is_kept(tmp_path: Path) -> None:
    setup = Setup("no_such_device", ("forward",), str(tmp_path / "log"))
    (result,) = run_cases(CASES[:1], setup, 1, lambda result: None)
    assert result.tallies["forward"].failed
