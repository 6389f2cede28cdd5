"""The process that runs cases. When an op kills it, the position it wrote says which sample to blame."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from .model import KINDS, Case

POSITION_BYTES = 64


class Order(NamedTuple):
    """What the parent sends: a case, and the samples that killed a worker before."""

    case: Case
    skip: tuple[tuple[str, str], ...]


class Setup(NamedTuple):
    """What all orders of one run have in common."""

    device: str
    kinds: tuple[str, ...]
    log: str
    limit: int | None = None
    stream: str = "default"


def write_position(shared: Any, kind: str, sample: str) -> None:
    shared.value = f"{KINDS.index(kind)} {sample}".encode()[: POSITION_BYTES - 1]


def read_position(shared: Any) -> tuple[str, str] | None:
    """Returns the kind and sample that were running, None if the worker had not begun any."""
    text: bytes = shared.value
    if not text:
        return None
    index, _, sample = text.decode().partition(" ")
    return KINDS[int(index)], sample


def serve(connection: Connection, position: ctypes.Array[ctypes.c_char], setup: Setup) -> None:
    """Answers orders until the parent closes the connection."""
    log = os.open(setup.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(sys.stderr)
    warnings.simplefilter("ignore")

    import torch

    from .examine import examine

    torch.set_num_threads(1)
    torch._C._set_warnAlways(False)
    on_side_stream = setup.stream == "side"
    if on_side_stream:
        torch.accelerator.set_stream(torch.Stream(device=setup.device))
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        connection.send(
            examine(
                order.case,
                setup.device,
                setup.kinds,
                skip=order.skip,
                limit=setup.limit,
                rehearsed=on_side_stream,
                observer=lambda kind, sample: write_position(position, kind, sample),
            )
        )
