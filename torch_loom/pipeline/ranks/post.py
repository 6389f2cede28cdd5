"""Messages between the ranks of a program, over a gloo process group that belongs to the pipelines alone."""

from __future__ import annotations

import datetime
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from torch_loom import config
from torch_loom.errors import RankError
from torch_loom.pipeline.message import PACKET_BYTES, Message, decode, encode, num_body_bytes

CONNECT_SECONDS = 300
FLUSH_SECONDS = 2.0
_NO_LIMIT = datetime.timedelta(days=365)  # a rank may wait for as long as the others live


class Receiver(Protocol):
    """A run on this rank."""

    def receive(self, rank: int, message: Message) -> None:
        """Take a message; called in the thread that reads the rank's connection, and must not wait."""

    def lost(self, rank: int, error: RankError) -> None:
        """Handle the loss of a rank that ended without a message."""


class Post:
    """The connections of this rank to all others: a sending and a receiving thread for each.

    Messages of a run that this rank has not started yet wait for it.
    """

    def __init__(self) -> None:
        store, self.rank, self.world_size = _rendezvous()
        # A group of its own: what the program sends through torch.distributed is not in its way.
        group: Any = dist.ProcessGroupGloo
        limit = datetime.timedelta(seconds=CONNECT_SECONDS)
        try:
            mine = dist.PrefixStore("torch_loom.pipeline", store)  # type: ignore[attr-defined]
            self._group = group(mine, self.rank, self.world_size, limit)
        except (RuntimeError, ValueError) as error:
            raise _not_found(error) from error
        self.peers = [rank for rank in range(self.world_size) if rank != self.rank]
        self._lock = threading.Lock()
        self._runs: dict[int, Receiver] = {}
        self._num_runs = self._newest = 0
        self._early: defaultdict[int, list[tuple[int, Message]]] = defaultdict(list)
        self._lost: dict[int, RankError] = {}
        self._closing = False
        self._outgoing = {peer: queue.SimpleQueue[Message | None]() for peer in self.peers}
        self._senders = [self._thread(self._send_all, peer, "send") for peer in self.peers]
        self._receivers = [self._thread(self._receive_all, peer, "receive") for peer in self.peers]
        for thread in self._senders + self._receivers:
            thread.start()

    def next_run(self) -> int:
        """Return the number of the next run; all ranks start the same runs in the same order."""
        self._num_runs += 1
        return self._num_runs

    def register(self, run: int, receiver: Receiver) -> None:
        """Hand a run its messages, those that came before first."""
        with self._lock:
            self._runs[run], self._newest = receiver, run
            for rank, message in self._early.pop(run, ()):
                receiver.receive(rank, message)
            lost = list(self._lost.items())
        for rank, error in lost:
            receiver.lost(rank, error)

    def unregister(self, run: int) -> None:
        """Drop what still comes for a run."""
        with self._lock:
            self._runs.pop(run, None)
            self._early.pop(run, None)  # of a run whose start failed
            self._newest = max(self._newest, run)

    def send(self, rank: int, message: Message) -> None:
        """Queue a message for a rank, whose tensors are read at once. Messages to lost ranks are dropped."""
        self._outgoing[rank].put(encode(message))  # type: ignore[arg-type]

    def close(self) -> None:
        """Send the others that this process ends, and end the connections."""
        self._closing = True
        for peer in self.peers:
            self.send(peer, Message("exit"))
            self._outgoing[peer].put(None)
        deadline = time.monotonic() + FLUSH_SECONDS
        for thread in self._senders:
            thread.join(max(deadline - time.monotonic(), 0))
        self._group.abort()
        for thread in self._receivers:
            thread.join(max(deadline - time.monotonic(), 0.1))

    def _thread(self, work: Callable[[int], None], peer: int, what: str) -> threading.Thread:
        return threading.Thread(target=work, args=(peer,), name=f"loom rank {peer} {what}", daemon=True)

    def _send_all(self, peer: int) -> None:
        while (packets := self._outgoing[peer].get()) is not None:
            try:
                for packet in packets:  # type: ignore[attr-defined]
                    if packet is not None:
                        self._group.send([packet], peer, 0).wait(_NO_LIMIT)
            except RuntimeError as error:
                self._lose(peer, error)
                return

    def _receive_all(self, peer: int) -> None:
        while True:
            first = torch.empty(PACKET_BYTES, dtype=torch.uint8)
            body = None
            try:
                self._group.recv([first], peer, 0).wait(_NO_LIMIT)
                if num_bytes := num_body_bytes(first):
                    body = torch.empty(num_bytes, dtype=torch.uint8)
                    self._group.recv([body], peer, 0).wait(_NO_LIMIT)
            except RuntimeError as error:
                self._lose(peer, error)
                return
            try:
                message = decode(first, body)
                if message.kind == "exit":
                    self._lose(peer, RankError(f"rank {peer} has ended"))
                    return
                self._hand_over(peer, message)
            except Exception as error:  # no caller would see it
                text = f"what rank {peer} sent cannot be taken in ({type(error).__name__}: {error})"
                lost = RankError(text)
                lost.__cause__ = error
                self._lose(peer, lost)
                return

    def _hand_over(self, peer: int, message: Message) -> None:
        with self._lock:
            receiver = self._runs.get(message.run)
            if receiver is None:
                if message.run > self._newest:
                    self._early[message.run].append((peer, message))
                return
        receiver.receive(peer, message)

    def _lose(self, peer: int, error: Exception) -> None:
        if self._closing:
            return
        if not isinstance(error, RankError):
            first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            error = RankError(
                f"rank {peer} was killed or cannot be reached ({first_line}): its own output has the reason"
            )
        with self._lock:
            if peer in self._lost:
                return
            self._lost[peer] = error
            runs = list(self._runs.values())
        for receiver in runs:
            receiver.lost(peer, error)


_post: Post | None = None
_of_parent: list[Post | None] = []


def _forget() -> None:
    """In a fork the connections are the parent's: they are neither used nor ended there."""
    global _post
    _of_parent.append(_post)
    _post = None


os.register_at_fork(after_in_child=_forget)


def is_launched() -> bool:
    """Whether this process is one of several of torchrun, or of an initialized torch.distributed."""
    if not dist.is_available():
        return False
    if dist.is_initialized():
        return dist.get_world_size() > 1 and not _is_pretended()
    return dist.is_torchelastic_launched() and config.num_launched_ranks() > 1


def post() -> Post:
    """Return the connections of this rank, made at the first call; all ranks must make it.

    Raises:
        RankError: there is no torchrun, or the others did not come.
    """
    global _post
    if _post is None:
        _post = Post()
    return _post


def close() -> None:
    """End the connections, if there are some. Called once, at the end of the program."""
    if _post is not None:
        _post.close()


def _rendezvous() -> tuple[Any, int, int]:
    if not dist.is_available():
        raise RankError("this build of PyTorch has no torch.distributed: run all stages in one process")
    if dist.is_initialized():
        if _is_pretended():
            raise RankError(
                f"the ranks of the process group {dist.get_backend()!r} do not exist: leave out ranks, or "
                "start the program with torchrun"
            )
        store = dist.distributed_c10d._get_default_store()
        return store, dist.get_rank(), dist.get_world_size()
    try:
        found = rendezvous("env://", timeout=datetime.timedelta(seconds=CONNECT_SECONDS))
        store, rank, world_size = next(iter(found))
        return store, rank, world_size
    except (RuntimeError, ValueError) as error:
        raise _not_found(error) from error


def _not_found(error: Exception) -> RankError:
    return RankError(
        f"the ranks of the pipeline cannot find one another ({error}): start the program with torchrun, "
        "or call torch.distributed.init_process_group first"
    )


def _is_pretended() -> bool:
    """Whether the default process group has no other processes: a fake group, or a plan's group."""
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    in_memory = isinstance(store, dist.HashStore)  # type: ignore[attr-defined]
    return in_memory or dist.get_backend() == "fake"
