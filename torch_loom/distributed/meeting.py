"""Where processes that simulate ranks of a cluster learn when the others begin what they take part in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from torch_loom.errors import DryRunError


class Answer(NamedTuple):
    """When an operation begins, and what those that take part have given to it."""

    begins_ns: int
    given: Mapping[int, Any]


def ask(
    connection: Connection, key: str, members: Sequence[int], name: str, ready_ns: int = 0, given: Any = None
) -> Answer:
    """Return when an operation begins that this rank is ready for at a time; called by a rank.

    What is sent begins at once. Else the answer comes when all members, or the sender, are ready.
    """
    connection.send(("meets", _Wish(key, tuple(members), name, ready_ns, given)))
    answer = Answer(ready_ns, {}) if name == "send" else connection.recv()
    assert isinstance(answer, Answer)
    return answer


class _Wish(NamedTuple):
    key: str
    members: tuple[int, ...]
    name: str
    ready_ns: int
    given: Any

    def text(self) -> str:
        group, _, number = self.key.partition("#")
        pair = group.rpartition(":")[2]
        of = f"of the ranks {self.members} that are simulated" if pair == "-1>-1" else f"of the pair {pair}"
        return f"{self.name} number {int(number) + 1} {of}"


class Hall:
    """Serves ranks until all have ended.

    Args:
        ranks: that will be admitted.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[int, _Wish] = {}
        self._sent: dict[str, tuple[int, _Wish]] = {}
        self._results: dict[int, Any] = {}

    def admit(self, rank: int, connection: Connection) -> None:
        """Serve a rank from now on, whose process has the other end of the connection."""
        self._connections[rank] = connection

    def serve(self) -> Mapping[int, Any]:
        """Return what each rank has sent as its result.

        Raises:
            DryRunError: ranks wait for others that have ended, or for one another; a process has ended.
            Exception: what a rank raised.
        """
        while self._connections:
            if len(self._waiting) == len(self._connections):
                self._break_up()
            rank_of = {id(connection): rank for rank, connection in self._connections.items()}
            for ready in wait(list(self._connections.values())):
                self._hear(rank_of[id(ready)])
        return dict(sorted(self._results.items()))

    def _hear(self, rank: int) -> None:
        connection = self._connections[rank]
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            raise DryRunError(f"the process that simulated rank {rank} has ended without a result") from None
        if kind == "meets":
            self._meet(rank, content)
            return
        del self._connections[rank]
        connection.close()
        if kind == "failed":
            error, text = content
            raise error from DryRunError(f"rank {rank} of the simulated cluster raised:\n{text}")
        self._results[rank] = content

    def _meet(self, rank: int, wish: _Wish) -> None:
        if wish.name == "send":
            self._sent[wish.key] = (rank, wish)
            for receiver in [other for other, its in self._waiting.items() if its.key == wish.key]:
                self._receive(receiver)
            return
        self._waiting[rank] = wish
        if wish.name == "recv":
            if wish.key in self._sent:
                self._receive(rank)
            return
        together = [other for other, its in self._waiting.items() if its.key == wish.key]
        if len(together) == len(wish.members):
            wishes = {other: self._waiting[other] for other in together}
            answer = Answer(
                max(its.ready_ns for its in wishes.values()),
                {other: its.given for other, its in wishes.items() if its.given is not None},
            )
            for other in together:
                self._answer(other, answer)

    def _receive(self, rank: int) -> None:
        wish = self._waiting[rank]
        sender, sent = self._sent.pop(wish.key)
        self._answer(rank, Answer(max(sent.ready_ns, wish.ready_ns), {sender: sent.given}))

    def _answer(self, rank: int, answer: Answer) -> None:
        del self._waiting[rank]
        self._connections[rank].send(answer)

    def _break_up(self) -> None:
        """Let a receiver go on, where all ranks wait: it may send, before it uses what it receives."""
        receivers = [
            (wish.ready_ns, rank)
            for rank, wish in self._waiting.items()
            if wish.name == "recv" and not wish.key.startswith("objects") and not self._has_ended(wish)
        ]
        if not receivers:
            waits = "; ".join(f"rank {rank} in {wish.text()}" for rank, wish in sorted(self._waiting.items()))
            ended = sorted(self._results)
            others = f" The ranks {ended} have ended." if ended else ""
            raise DryRunError(
                f"the simulated ranks wait for one another, or for ranks that have ended: {waits}.{others} "
                "All ranks of a group must call the same collectives in the same order"
            )
        ready_ns, rank = min(receivers)
        self._answer(rank, Answer(ready_ns, {}))

    def _has_ended(self, wish: _Wish) -> bool:
        return any(member in self._results for member in wish.members)
