"""The processes that run programs, one for each launch mode, and the comparison of what they found."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEMORY = "48MiB"
NUM_CHAOS = 2
# Far more than any program takes: only a program that hangs takes so long.
TIMEOUT_S = 120.0

Steps = list[list[Any]]


class ProgramError(AssertionError):
    """A program failed in one mode, or modes disagree; the message holds the program."""


class Nursery:
    """The process that workers are forked from, and where they report."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._listener = Listener(f"{self._folder.name}/fleet", "AF_UNIX")
        ours = ("TORCH_LOOM_", "TORCH_DEVICE_BACKEND_AUTOLOAD")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.nursery"],
            cwd=ROOT,
            env={**inherited, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            text=True,
        )

    def worker(self, settings: Mapping[str, str]) -> tuple[Connection, int]:
        """Return the connection to a new worker, and its process's number."""
        environment = {"TORCH_LOOM_MEMORY": MEMORY, "TORCH_LOOM_DEVICES": "2", **settings}
        assert self._process.stdin is not None
        print(json.dumps([self._listener.address, environment]), file=self._process.stdin, flush=True)
        connection = self._listener.accept()
        return connection, connection.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._listener.close()
        self._folder.cleanup()


class Worker:
    """One process in one mode."""

    def __init__(self, nursery: Nursery, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self._nursery = nursery
        self._settings = settings
        self._connection, self._pid = nursery.worker(settings)

    def send(self, steps: Steps) -> None:
        """Let it run a program."""
        self._connection.send(steps)

    def answer(self) -> dict[str, Any]:
        """Wait for what came out. A worker that is not fit for more is replaced."""
        try:
            if self._connection.poll(TIMEOUT_S):
                answer: dict[str, Any] = self._connection.recv()
            else:
                answer = {"error": f"no answer within {TIMEOUT_S:.0f} s", "clean": False}
        except (EOFError, ConnectionResetError):
            answer = {"error": "the process died", "clean": False}
        if not answer["clean"]:
            self.stop()
            self._connection, self._pid = self._nursery.worker(self._settings)
        return answer

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


class Fleet:
    """One worker for each mode. The chaos ones are seeded from `chaos_seed`.

    After `deadline`, on the clock of time.monotonic(), programs are not run any more, unless one has failed:
    it is being made short then.
    """

    def __init__(self, chaos_seed: int) -> None:
        self.deadline = math.inf
        self.failed = False
        self.num_programs = self.num_steps = self.num_diverged = 0
        self.chaos_seed = chaos_seed
        self._nursery = Nursery()
        self.workers = [
            Worker(self._nursery, mode, {"TORCH_LOOM_LAUNCH": mode}) for mode in ("blocking", "auto")
        ]
        self._start_chaos()

    def _start_chaos(self) -> None:
        for number in range(NUM_CHAOS):
            seed = str(self.chaos_seed * NUM_CHAOS + number)
            settings = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": seed}
            self.workers.append(Worker(self._nursery, f"chaos {seed}", settings))

    def reseed(self, chaos_seed: int) -> None:
        """Begin another seed's programs, with other chaos workers if it means some."""
        self.failed = False
        if chaos_seed == self.chaos_seed:
            return
        self.chaos_seed = chaos_seed
        for worker in self.workers[2:]:
            worker.stop()
        del self.workers[2:]
        self._start_chaos()

    def check(self, steps: Steps) -> None:
        """Run a program in every mode.

        Raises:
            ProgramError: a check failed in one of them, or they ended with different contents.
        """
        if time.monotonic() >= self.deadline and not self.failed:
            return
        for worker in self.workers:
            worker.send(steps)
        answers = {worker.name: worker.answer() for worker in self.workers}
        self.num_programs += 1
        self.num_steps += len(steps)
        failed = [
            f"{name}, step {each.get('step')}: {each['error']}"
            for name, each in answers.items()
            if "error" in each
        ]
        if failed:
            self.failed = True
            raise ProgramError("\n".join([*failed, json.dumps(steps)]))
        first = next(iter(answers.values()))
        # Memory that waits for other streams is not free yet: an allocation may fail in one mode only.
        same = [each for each in answers.values() if each["out_of_memory"] == first["out_of_memory"]]
        self.num_diverged += len(same) < len(answers)
        if any(each["digests"] != first["digests"] for each in same):
            self.failed = True
            raise ProgramError(f"modes disagree: {answers}\n{json.dumps(steps)}")

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.stop()
        self._nursery.stop()
