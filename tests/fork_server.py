"""An interpreter that has imported modules, whose forked children run programs.

Its arguments are a listening socket and the names of the modules. Each connection, one of each worker of
xdist, is served by a child of its own: a line names a program, which a child of that child runs. It is
started by :mod:`tests.forking`, and ends with its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
import types
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve all connections; in a child that runs a program, return or raise as the program does."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # it was for this process's import of torch
    # A shell starts what runs in its background with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy the pages of all modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a connection ended
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _serve(connection)
            return
        connection.close()


def _serve(connection: socket.socket) -> None:
    """Fork a child for each job of a connection; return in a child that has run its program."""
    with connection, connection.makefile("rw", encoding="utf-8") as stream:
        print("ready", file=stream, flush=True)
        for line in stream:
            job = json.loads(line)
            pid = os.fork()
            if pid == 0:
                os.close(connection.detach())
                # Before pytest's own limit, after which nobody would read the answer.
                signal.alarm(job["limit_s"])
                _begin(job)
                return
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(job["number"], status, file=stream, flush=True)


def _begin(job: dict[str, Any]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, job["stdout"]), (2, job["stderr"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(job["env"])
    if job["is_torn_down"]:
        _run(job)
        return
    status = 0
    try:
        _run(job)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(job: dict[str, Any]) -> None:
    if job["is_autoloading"]:
        import torch

        # As at the end of `import torch`, under the settings of the job.
        torch._import_device_backends()
    name = job["argv"][0]
    sys.argv[:] = job["argv"]
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    # `inspect.stack` searches all modules for the file of a frame that none has.
    program.__file__ = name
    exec(compile(Path(name).read_text(encoding="utf-8"), name, "exec"), program.__dict__)
