"""Programs in interpreters of their own: fresh ones, and forked children of one that has imported torch."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

_SERVER = "from tests import fork_server; fork_server.main()"
ROOT = Path(__file__).parents[1]


def environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return this process's environment without any setting of torch-loom's but those in `env`."""
    ours = ("TORCH_LOOM_", "TORCH_RBLN_", "RBLN_", "TORCH_DEVICE_BACKEND_AUTOLOAD", "CUDA_", "TORCH_CUDA_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**inherited, **(env or {})}


def checked(done: subprocess.CompletedProcess[str], check: bool) -> subprocess.CompletedProcess[str]:
    """Return `done`; fail, showing the output, if the program failed and is checked."""
    if check and done.returncode != 0:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done


def arguments(program: Path | str, given: object, file: Path | None = None) -> list[str]:
    """Return the arguments of an interpreter: a program, written to `file` if it is a text, and a literal."""
    if isinstance(program, str):
        assert file is not None
        file.write_text(textwrap.dedent(program), encoding="utf-8")
        program = file
    if given is None:
        return [str(program)]
    assert ast.literal_eval(repr(given)) == given, f"{given!r} is no literal"
    return [str(program), repr(given)]


class ForkServer:
    """An interpreter whose forked children run programs. See :func:`serving`."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._requests, self._answers = server.stdin, server.stdout
        self._folder = folder
        self._number = 0

    def run(
        self,
        program: Path | str,
        env: Mapping[str, str] | None = None,
        *,
        given: object = None,
        check: bool = True,
        limit_s: int = 100,
        is_torn_down: bool = False,
        is_autoloading: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a forked child.

        Args:
            program: its file, or its text.
            env: variables that it finds set.
            given: a literal, whose text is the argument of the program.
            check: whether the test fails if the program does.
            limit_s: seconds after which the program is ended.
            is_torn_down: whether the program ends as an interpreter does, with its exit status and its
                handlers, or just stops.
            is_autoloading: whether the device is registered first, under the name in `env`, as `import torch`
                does; it must not have been imported.
        """
        self._number += 1
        files = {name: self._folder / f"{name}.{self._number}" for name in ("stdout", "stderr")}
        job = {
            "number": self._number,
            "limit_s": limit_s,
            "argv": arguments(program, given, self._folder / f"program.{self._number}.py"),
            "env": dict(env or {}),
        }
        job |= {"is_torn_down": is_torn_down, "is_autoloading": is_autoloading}
        job |= {name: str(path) for name, path in files.items()}
        print(json.dumps(job), file=self._requests, flush=True)
        number = status = 0
        while number != self._number:  # a test that ran into its limit has left its answer
            number, status = map(int, self._answers.readline().split())
        output = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
        return checked(subprocess.CompletedProcess(["<fork>"], status, **output), check)


@contextmanager
def serving(folder: Path, *modules: str, env: Mapping[str, str] | None = None) -> Iterator[ForkServer]:
    """Start an interpreter that has imported these modules, without any other setting of torch-loom's.

    Args:
        folder: where the output of programs is kept.
        modules: what is imported, in this order; `torch` registers no device by itself.
        env: settings of the interpreter, which its children inherit.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, *modules],
        env=environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **(env or {})}),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        fork_server = ForkServer(server, folder)
        yield fork_server
        fork_server._requests.close()
