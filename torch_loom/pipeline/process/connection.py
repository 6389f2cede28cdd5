"""Messages between a stage's process and the program, over a pipe: no shared memory, so none is left."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch

from torch_loom.pipeline.message import Message, decode, encode, num_body_bytes

__all__ = ["receive", "send"]


def send(connection: Connection[Any, Any], message: Message) -> None:
    """Send a message.

    Raises:
        OSError: the other process has ended.
    """
    first, body = encode(message)
    connection.send_bytes(first.numpy().tobytes())
    if body is not None:
        connection.send_bytes(body.numpy().tobytes())


def receive(connection: Connection[Any, Any]) -> Message:
    """Return the next message; waits for it.

    Raises:
        EOFError, OSError: the other process has ended.
    """
    first = _bytes(connection.recv_bytes())
    body = _bytes(connection.recv_bytes()) if num_body_bytes(first) else None
    return decode(first, body)


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
