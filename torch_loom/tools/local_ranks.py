"""`loom run --local-ranks`: a program as so many ranks of a group, in processes of this machine.

What a launcher starts in a new Python each is forked here from one that has imported torch.
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence

from torch_loom.config.sources import foreign

# How long ranks may take to end once one has failed.
_GRACE_SECONDS = 5


def environment(num_ranks: int) -> dict[str, str]:
    """Return what is the same for all ranks of a group on this machine, as ``torchrun`` sets it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return {
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Ranks share the cores.
        "OMP_NUM_THREADS": foreign("OMP_NUM_THREADS") or "1",
    }


def main(arguments: Sequence[str]) -> int:
    """Fork the ranks, which run the program, and return the status of the first that fails, or 0."""
    # For all ranks at once: what DistributedDataParallel and FSDP import when they are made.
    for module in ("torch._dynamo", "torch.distributed.fsdp"):
        importlib.import_module(module)
    sys.stdout.flush()
    sys.stderr.flush()
    ranks = {}
    for rank in range(int(foreign("WORLD_SIZE") or 1)):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            # It ends as a program does: with what it has registered for its end.
            _run(arguments)
            return 0
        ranks[child] = rank
    return _wait(ranks)


def _run(arguments: Sequence[str]) -> None:
    first, rest = arguments[0], list(arguments[1:])
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


def _wait(ranks: dict[int, int]) -> int:
    failed = 0
    while ranks:
        try:
            child, status = os.wait()
        except KeyboardInterrupt:
            # The terminal sends the signal to the ranks, too.
            failed = failed or 128 + signal.SIGINT
            continue
        rank = ranks.pop(child, None)
        code = os.waitstatus_to_exitcode(status)
        if rank is None or code == 0 or failed:
            continue
        failed = code if code > 0 else 128 - code
        sys.stderr.write(f"loom run: rank {rank} has ended with status {code}; the others are ended\n")
        _signal(ranks, signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: _signal(ranks, signal.SIGKILL))
        signal.alarm(_GRACE_SECONDS)
    return failed


def _signal(ranks: dict[int, int], number: signal.Signals) -> None:
    for child in ranks:
        os.kill(child, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
