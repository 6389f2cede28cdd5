"""One run of a pipeline whose stages stand on several ranks: what this rank sends, receives and waits for."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom.errors import PipelineError, PipelineStoppedError, RankError, StageError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.failure import Lifeline, original_error
from torch_loom.pipeline.links import END, Feed
from torch_loom.pipeline.message import Message
from torch_loom.pipeline.ranks.post import Post
from torch_loom.pipeline.transfer import Parcel, Receiver, Tensors, parcel

_CPU = torch.device("cpu")
_UNBOUNDED = 1 << 30
_ANSWER = "answer"
Send = Callable[[Tensors], None]


class Outbox:
    """The end of a queue whose reader is on another rank; ``capacity`` entries, those there included."""

    def __init__(self, run: RankedRun, key: str, rank: int, capacity: int) -> None:
        self._run, self._key, self._rank = run, key, rank
        self._tokens: Channel[None] = Channel(f"{key}: room on rank {rank}", _UNBOUNDED, run.lifeline)
        self._to_host = Receiver(_CPU)
        for _ in range(capacity):
            self._tokens.put(None)

    def put(self, item: Feed | Parcel | Tensors) -> None:
        """Send an entry; wait for room.

        Raises:
            StageError: the pipeline failed.
            PipelineStoppedError: the reader's rank has ended the run.
        """
        value: Any = None
        sent: Parcel | None = parcel(item) if isinstance(item, tuple) else None
        if isinstance(item, Feed):
            sent, value = item.parcel, {"names": item.names, "end": item.parcel is None}
        elif isinstance(item, Parcel):
            sent = item
        tensors = self._to_host.open(sent) if sent is not None else ()
        self._tokens.get()
        self._run.send(self._rank, Message("data", key=self._key, value=value, tensors=tensors))

    def add_room(self) -> None:
        """The reader has released an entry."""
        self._tokens.put(None)

    def close(self, error: PipelineError) -> None:
        """There is no reader any more."""
        self._tokens.close(error)


class Inbox(Channel[Any]):
    """The end of a queue whose writer is on another rank; each released entry is reported to that rank."""

    def __init__(self, run: RankedRun, key: str, rank: int) -> None:
        super().__init__(key, _UNBOUNDED, run.lifeline)
        self._run, self._rank = run, rank

    def release(self) -> None:
        """One taken entry is no longer held: its writer may send another."""
        super().release()
        if self.name == _ANSWER:
            return  # at most one for each call, so its writer never waits for room
        self._run.send(self._rank, Message("credit", key=self.name))


class RankedRun:
    """What one rank has to do with the others in one run.

    Every rank makes the same calls. Stages run where they are mapped to; what a program reads (outputs,
    losses, checkpoints) comes to every rank.

    Args:
        ranks: the rank of each stage.
        names: the name of each stage.
    """

    def __init__(self, post: Post, ranks: Sequence[int], names: Sequence[str], lifeline: Lifeline) -> None:
        self._post, self.ranks, self._names = post, ranks, names
        self.rank, self.lifeline = post.rank, lifeline
        self.number = post.next_run()
        self._lock = threading.Lock()
        self._outboxes: dict[tuple[int, str], Outbox] = {}
        self._inboxes: dict[tuple[int, str], Inbox] = {}
        self._early: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
        self._ended: dict[int, PipelineError] = {}
        self._answers = {rank: self.inbox(_ANSWER, rank) for rank in post.peers}
        lifeline.on_failure = self._tell_failure

    def start(self) -> None:
        """Begin to receive, once the queues are made."""
        self._post.register(self.number, self)

    def outbox(self, key: str, rank: int, capacity: int) -> Outbox:
        """Return the writing end of the queue of this name to a rank."""
        made = Outbox(self, key, rank, capacity)
        with self._lock:
            self._outboxes[rank, key] = made
            if rank in self._ended:
                made.close(self._ended[rank])
        return made

    def inbox(self, key: str, rank: int) -> Inbox:
        """Return the reading end of the queue of this name from a rank."""
        made = Inbox(self, key, rank)
        with self._lock:
            self._inboxes[rank, key] = made
            # A rank that is ahead sends before this rank has made the queue.
            for item in self._early.pop((rank, key), ()):
                made.put(item)
            if rank in self._ended:
                made.close(self._ended[rank])
        return made

    def share(
        self, key: str, owner: int, send: Send, end: Callable[[PipelineError], None], capacity: int
    ) -> Send:
        """Let what one rank puts into a program's queue come to that queue on every rank.

        ``end`` is called on the others once the owner has left and all that it sent is handed over.
        Returns what the owner calls with tensors; on the others a thread calls ``send`` with what comes.
        """
        if owner == self.rank:
            boxes = [self.outbox(key, rank, capacity) for rank in self._post.peers]

            def put(tensors: Tensors) -> None:
                on_host = Receiver(_CPU).open(parcel(tensors))
                # The others first: a thread that reads the last entry here may shut the pipeline down.
                for box in boxes:
                    box.put(on_host)
                send(on_host)

            return put
        box = self.inbox(key, owner)
        threading.Thread(
            target=self._deliver, args=(box, owner, send, end), name=f"loom queue {key}", daemon=True
        ).start()
        return send

    def exchange(self, mine: Any, tensors: Sequence[torch.Tensor | None] = ()) -> dict[int, Message]:
        """Give this to all ranks, and return what each gave; every rank makes the same calls.

        Raises:
            StageError: the pipeline failed.
            PipelineStoppedError: a rank has ended the run instead.
        """
        message = Message("data", key=_ANSWER, value=mine, tensors=tuple(tensors))
        for rank in self._post.peers:
            self.send(rank, message)
        found = {self.rank: message}
        for rank in self._post.peers:
            found[rank] = self._answers[rank].get()
        return found

    def send(self, rank: int, message: Message) -> None:
        """Send a message of this run."""
        self._post.send(rank, Message(message.kind, self.number, message.key, message.value, message.tensors))

    def end(self) -> None:
        """Notify the other ranks that this one has shut down."""
        self.lifeline.on_failure = None
        for rank in self._post.peers:
            self.send(rank, Message("bye"))
        self._post.unregister(self.number)

    # Called by the post, in the threads that receive

    def receive(self, rank: int, message: Message) -> None:
        """Take a message of this run; never waits."""
        with contextlib.suppress(PipelineError):  # the run has ended meanwhile
            match message.kind:
                case "credit":
                    self._outboxes[rank, message.key].add_room()
                case "data":
                    self._put(rank, message.key, _item(message))
                case "failed":
                    self.lifeline.end_with(_told(message.value))
                case "bye":
                    self._close(rank, PipelineStoppedError(f"rank {rank} has shut the pipeline down"))

    def lost(self, rank: int, error: RankError) -> None:
        """End the run, unless the rank had ended its part of it."""
        if rank not in self._ended:
            names = [name for name, at in zip(self._names, self.ranks, strict=True) if at == rank]
            self.lifeline.fail(", ".join(names) or f"rank {rank}", f"its process, rank {rank}", error)

    def _put(self, rank: int, key: str, item: Any) -> None:
        with self._lock:
            box = self._inboxes.get((rank, key))
            if box is None:
                self._early[rank, key].append(item)
                return
        box.put(item)

    def _close(self, rank: int, error: PipelineError) -> None:
        with self._lock:
            self._ended[rank] = error
            boxes: list[tuple[tuple[int, str], Any]] = [*self._outboxes.items(), *self._inboxes.items()]
        for (at, _), box in boxes:
            if at == rank:
                box.close(error)

    def _deliver(self, box: Inbox, owner: int, send: Send, end: Callable[[PipelineError], None]) -> None:
        try:
            while True:
                entry = box.take()
                send(entry.tensors)
                box.release()
        except PipelineStoppedError as error:
            end(error)  # readers that still wait would wait for ever
        except StageError:
            pass
        except BaseException as error:
            self.lifeline.fail(self._names[-1], f"handing on what rank {owner} sent", error)

    def _tell_failure(self, error: StageError) -> None:
        cause = error.__cause__
        kind = type(cause)
        value = [error.stage, str(error), kind.__module__, kind.__qualname__, str(cause)]
        for rank in self._post.peers:
            self.send(rank, Message("failed", value=value))


def _item(message: Message) -> Any:
    """What a queue holds: between stages a feed, gradients as a parcel; else the message."""
    if message.key.startswith("forward "):
        if message.value["end"]:
            return END
        names = message.value["names"]
        return Feed(Parcel(tuple(message.tensors), ()), None if names is None else tuple(names))
    if message.key.startswith("backward "):
        return Parcel(tuple(message.tensors), ())
    return message


def _told(value: list[str]) -> StageError:
    stage, text, module, name, cause = value
    return StageError.of(stage, text, original_error(module, name, cause))
