"""Messages between a stage's process and the program, over a pipe: no shared memory, so none is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from torch_loom.pipeline.message import Message, decode, encode, num_body_bytes

Packets = tuple[torch.Tensor, "torch.Tensor | None"]


class Questions:
    """The program's end of the pipe: each question is answered by its own answer.

    A question may be left without its answer, as Ctrl-C does: the next question drops the late answer.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._number = 0
        self._is_torn = False

    def ask(
        self,
        kind: str,
        value: Any = None,
        tensors: Sequence[torch.Tensor | None] = (),
        deadline: float | None = None,
    ) -> Message:
        """Send a question, and return its answer; ``deadline`` as of ``time.monotonic``, or no limit.

        Raises:
            PipelineError: a tensor has no dense memory to send.
            EOFError, OSError: the other process has ended.
            TimeoutError: there was no answer in time.
        """
        if self._is_torn:
            raise EOFError("a message was cut off")
        self._number += 1
        packets = encode(Message(kind, self._number, value=value, tensors=tuple(tensors)))
        # An interrupt within a message leaves half of it in the pipe; one while waiting does no harm.
        self._is_torn = True
        send(self._connection, packets)
        self._is_torn = False
        while True:
            if not self._connection.poll(None if deadline is None else max(deadline - time.monotonic(), 0)):
                raise TimeoutError("there was no answer in time")
            self._is_torn = True
            answer = receive(self._connection)
            self._is_torn = False
            if answer.run == self._number:
                return answer

    def close(self) -> None:
        """Close this end of the pipe."""
        self._connection.close()


def send(connection: Connection[Any, Any], packets: Packets) -> None:
    """Send what ``encode`` made of a message.

    Raises:
        OSError: the other process has ended.
    """
    first, body = packets
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
