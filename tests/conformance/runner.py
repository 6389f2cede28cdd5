"""Runs cases in worker processes; an op that crashes or hangs costs its worker, never the run."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from .model import Case, CaseResult, Failure, Tally
from .worker import POSITION_BYTES, Order, Setup, read_position, serve

TIMEOUT_SECONDS = 180.0
"""How long one case may take. The longest take a few seconds."""

MAX_CRASHES = 20
"""After so many crashes of one case its remaining samples are not run: one more failure."""

_context = multiprocessing.get_context("spawn")


class Worker:
    """One process and what it is doing."""

    def __init__(self, setup: Setup, target: Callable[..., None]) -> None:
        self.setup = setup
        self.target = target
        self.order: Order | None = None
        self.started = 0.0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = _context.Pipe()
        self.position: Any = _context.RawArray("c", POSITION_BYTES)
        self.process = _context.Process(
            target=self.target, args=(theirs, self.position, self.setup), daemon=True
        )
        self.process.start()
        theirs.close()

    def give(self, order: Order) -> None:
        self.order = order
        self.started = time.monotonic()
        self.position.value = b""
        self.connection.send(order)

    def overdue(self) -> bool:
        return self.order is not None and time.monotonic() - self.started > TIMEOUT_SECONDS

    def stop(self) -> int:
        """Ends the process whatever it is doing; returns its exit code, negative for a signal."""
        self.connection.close()
        if self.order is not None:
            self.process.kill()
        self.process.join()
        return self.process.exitcode or 0

    def restart(self) -> None:
        self._start()
        self.order = None


def run_cases(
    cases: Sequence[Case],
    setup: Setup,
    jobs: int,
    on_result: Callable[[CaseResult], None],
    *,
    target: Callable[..., None] = serve,
) -> list[CaseResult]:
    """Runs all cases in `jobs` processes; tells `on_result` each result, returns all in the cases' order.

    `target` is what a process runs; the tests of this file put one there that dies.
    """
    waiting = [Order(case, ()) for case in reversed(cases)]
    crashes: dict[Case, list[tuple[str, Failure]]] = {}
    results: dict[Case, CaseResult] = {}
    workers = [Worker(setup, target) for _ in range(min(jobs, len(cases)))]
    try:
        while len(results) < len(cases):
            for worker in workers:
                if worker.order is None and waiting:
                    worker.give(waiting.pop())
            ready = wait([worker.connection for worker in workers if worker.order is not None], timeout=1.0)
            for worker in workers:
                if worker.order is None or not (worker.connection in ready or worker.overdue()):
                    continue
                case = worker.order.case
                result = _receive(worker)
                if result is None:
                    again = _after_crash(worker, crashes.setdefault(case, []))
                    if again is not None:
                        waiting.append(again)
                        continue
                    result = CaseResult(case, {})
                _add_crashes(result, crashes.get(case, []))
                results[case] = result
                on_result(result)
    finally:
        for worker in workers:
            worker.stop()
    return [results[case] for case in cases]


def _receive(worker: Worker) -> CaseResult | None:
    """Returns the worker's result, None if it died or hangs."""
    if not worker.connection.poll():
        return None
    try:
        result: CaseResult = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        return None
    worker.order = None
    return result


def _after_crash(worker: Worker, crashes: list[tuple[str, Failure]]) -> Order | None:
    """Notes what the worker died of and starts another; returns the order for the rest, None to give up."""
    order = worker.order
    assert order is not None
    overdue = worker.overdue()
    position = read_position(worker.position)
    if overdue:
        worker.stop()
        cause = f"still running after {TIMEOUT_SECONDS:.0f} s, and was killed"
    else:
        worker.process.join(5)
        exit_code = worker.stop()
        cause = f"died: {signal.Signals(-exit_code).name if exit_code < 0 else f'exit code {exit_code}'}"
    worker.restart()
    kind, sample = position or ("forward", "(before the first)")
    crashes.append((kind, Failure(sample, f"the process {cause}")))
    if position is None or len(crashes) >= MAX_CRASHES:
        crashes.append((kind, Failure("the rest", "not run: the case kills its process again and again")))
        return None
    return Order(order.case, (*order.skip, position))


def _add_crashes(result: CaseResult, crashes: list[tuple[str, Failure]]) -> None:
    for kind, failure in crashes:
        result.tallies.setdefault(kind, Tally()).failures.append(failure)
