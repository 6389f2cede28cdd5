"""The processes that run programs, one for each launch mode, and the comparison of what they found."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
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


class Worker:
    """One process in one mode."""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.settings = dict(settings)
        self._start()

    def _start(self) -> None:
        ours = ("TORCH_LOOM_", "TORCH_DEVICE_BACKEND_AUTOLOAD")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        common = {"TORCH_LOOM_MEMORY": MEMORY, "TORCH_LOOM_DEVICES": "2", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.worker"],
            cwd=ROOT,
            env={**inherited, **common, **self.settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, steps: Steps) -> None:
        """Let it run a program."""
        if self._process.poll() is not None:  # it could not clean up after a program that failed
            self._start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says how the process ended
            print(json.dumps(steps), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """Wait for what came out."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(TIMEOUT_S) else None
        if line is None:
            answer: dict[str, Any] = {"error": f"no answer within {TIMEOUT_S:.0f} s"}
        elif line == "":
            answer = {"error": f"the process ended with status {self._process.wait()}"}
        else:
            parsed: dict[str, Any] = json.loads(line)
            return parsed
        self.stop()
        self._start()
        return answer

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Fleet:
    """One worker for each mode. The chaos ones are seeded from `chaos_seed`."""

    def __init__(self, chaos_seed: int) -> None:
        settings = {mode: {"TORCH_LOOM_LAUNCH": mode} for mode in ("blocking", "auto")}
        self.workers = [Worker(mode, each) for mode, each in settings.items()]
        self.num_programs = self.num_steps = self.num_diverged = 0
        self.chaos_seed = chaos_seed
        self._start_chaos()

    def _start_chaos(self) -> None:
        for number in range(NUM_CHAOS):
            seed = str(self.chaos_seed * NUM_CHAOS + number)
            settings = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": seed}
            self.workers.append(Worker(f"chaos {seed}", settings))

    def reseed(self, chaos_seed: int) -> None:
        """Replace the chaos workers if the seed is another one."""
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
            raise ProgramError("\n".join([*failed, json.dumps(steps)]))
        first = next(iter(answers.values()))
        # Memory that waits for other streams is not free yet: an allocation may fail in one mode only.
        same = [each for each in answers.values() if each["out_of_memory"] == first["out_of_memory"]]
        self.num_diverged += len(same) < len(answers)
        if any(each["digests"] != first["digests"] for each in same):
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
