"""The process that workers are forked from: it has imported torch, without loom.

A line of input is a worker to be: its environment, and the address where it is expected.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from multiprocessing.connection import Client

import torch


def become_worker(address: str, environment: dict[str, str]) -> None:
    """Answer programs until nobody asks any more."""
    faulthandler.enable()
    os.environ.update(environment)
    from .worker import serve

    torch.set_num_threads(1)
    with Client(address, "AF_UNIX") as connection:
        connection.send(os.getpid())
        serve(connection)


def main() -> None:
    """Fork until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
    for line in sys.stdin:
        if os.fork() == 0:
            status = 0
            try:
                become_worker(*json.loads(line))
            except BaseException:
                traceback.print_exc()
                status = 1
            os._exit(status)


if __name__ == "__main__":
    main()
