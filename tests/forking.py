"""Programs in interpreters of their own: fresh ones, and forked children of one that has imported torch."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

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
    """A connection to an interpreter whose forked children run programs. See :func:`serving`."""

    def __init__(self, stream: TextIO, folder: Path) -> None:
        self._stream = stream
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
        print(json.dumps(job), file=self._stream, flush=True)
        number = status = 0
        while number != self._number:  # a test that ran into its limit has left its answer
            answer = self._stream.readline()
            if not answer:
                raise RuntimeError(f"the interpreter that forks tests' programs ended before {program} did")
            number, status = map(int, answer.split())
        output = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
        return checked(subprocess.CompletedProcess(["<fork>"], status, **output), check)


@contextmanager
def serving(
    name: str, folder: Path, *modules: str, env: Mapping[str, str] | None = None
) -> Iterator[ForkServer]:
    """Connect to the interpreter of this name, and start it if no worker of this session has.

    Args:
        name: of the machine's sockets without a file; with the session in it.
        folder: where the output of programs is kept.
        modules: what it imports, in this order, without any other setting of torch-loom's; `torch` registers
            no device by itself.
        env: settings of the interpreter, which its children inherit.
    """
    with ExitStack() as stack:
        while True:
            listening = _listening(name)
            if listening:
                stack.enter_context(_started(listening, modules, env or {}))
            if stream := _connected(name):
                yield ForkServer(stack.enter_context(stream), folder)
                return
            if listening:
                pytest.fail(f"the interpreter that imports {modules} ends at once", pytrace=False)


def _connected(name: str) -> TextIO | None:
    """Return a connection, or None if what has the name does not listen yet, or has just ended."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{name}")
        stream = connection.makefile("rw", encoding="utf-8")  # keeps the connection open
        if stream.readline():
            return stream
        stream.close()
    return None


def _listening(name: str) -> socket.socket | None:
    """Return the listening socket of this name, or None if another process has it."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(f"\0{name}")
    except OSError:
        listening.close()
        return None
    listening.listen()
    return listening


@contextmanager
def _started(listening: socket.socket, modules: Sequence[str], env: Mapping[str, str]) -> Iterator[None]:
    """Start what serves the connections of a socket, and let it end at the end."""
    with listening:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(listening.fileno()), *modules],
            env=environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **env}),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
    with server:
        yield
