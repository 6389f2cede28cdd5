"""The process that runs programs in one launch mode: one JSON list of steps a line in, one JSON answer out.

TORCH_LOOM_LAUNCH=chaos python -m tests.runtime.worker < program.json
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

import torch_loom.device as loom

from . import actions, graph_actions  # noqa: F401 (they fill the table)
from .changes import ACTIONS
from .executor import DEVICES, Executor, Machine, Step


def run(machine: Machine, steps: list[Step], exact: bool) -> dict[str, Any]:
    """Run a program; the answer says what came out, or what went wrong at which step."""
    number = -1
    try:
        executor = Executor(machine, exact)
        for number, (name, *arguments) in enumerate(steps):
            executor.step = number
            ACTIONS[name](executor, *arguments)
            executor.check_statistics()
        return {"digests": executor.finish(), "out_of_memory": executor.out_of_memory}
    except BaseException:
        return {"error": traceback.format_exc(), "step": number}


def recovered() -> bool:
    """Return whether nothing is left of a program that failed."""
    gc.collect()
    for device in range(DEVICES):
        with contextlib.suppress(Exception):
            loom.synchronize(device)
        loom.empty_cache(device)
    return not any(loom.memory_reserved(device) for device in range(DEVICES))


def serve(connection: Connection) -> None:
    """Answer programs; after one that left something behind, end."""
    machine = Machine()
    exact = os.environ.get("TORCH_LOOM_LAUNCH") == "blocking"
    while True:
        try:
            steps = connection.recv()
        except EOFError:
            return
        answer = run(machine, steps, exact)
        answer["clean"] = "error" not in answer or recovered()
        connection.send(answer)
        if not answer["clean"]:
            return


def main() -> None:
    """Run the programs in the input, and print what comes out."""
    torch.set_num_threads(1)
    machine = Machine()
    exact = os.environ.get("TORCH_LOOM_LAUNCH") == "blocking"
    for line in sys.stdin:
        answer = run(machine, json.loads(line), exact)
        print(answer.pop("error", ""), answer, flush=True)


if __name__ == "__main__":
    main()
