"""What connects the stages of a run: the queues between them, and the program's own queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_loom.errors import PipelineError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.gather import Gather
from torch_loom.pipeline.links import Feed, Links
from torch_loom.pipeline.ranks.run import RankedRun, Send
from torch_loom.pipeline.readers import GuardedQueue
from torch_loom.pipeline.stage import Stage
from torch_loom.pipeline.transfer import Tensors

Convert = Callable[[tuple[torch.Tensor, ...]], Any]
ConvertCheckpoint = Callable[[dict[str, torch.Tensor]], Any]


class Wiring:
    """Links the stages of one run.

    Args:
        stages: in the order of the data.
        entries: capacity of each queue between two stages.
        lifeline: of the run; all queues end with it.
        convert: makes an item of a program's queue of its tensors on the host.
        ranked: where each stage stands, if they are on several ranks.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        entries: int,
        lifeline: Lifeline,
        convert: Convert,
        ranked: RankedRun | None = None,
    ) -> None:
        self._stages, self._entries = stages, entries
        self._lifeline, self._convert = lifeline, convert
        self._ranked = ranked
        self._senders: dict[tuple[int, int], tuple[GuardedQueue, Send]] = {}

    def link(
        self,
        inputs: Channel[Feed],
        targets: Channel[Feed],
        sinks: Mapping[str, GuardedQueue],
        convert_checkpoint: ConvertCheckpoint,
    ) -> None:
        """Join the stages, and the last to the program's ``outputs``, ``losses`` and ``checkpoints``."""
        last = len(self._stages) - 1
        gather = Gather(len(self._stages), sinks.get("checkpoints"), convert_checkpoint)
        for place, stage in enumerate(self._stages):
            stage.is_first, stage.is_last = place == 0, place == last
            stage.links = Links(inputs, targets, self._lifeline)
        for place, stage in enumerate(self._stages):
            links = stage.links
            assert links is not None
            links.on_checkpoint = self._checkpointer(place, gather)
            if place < last:
                after = self._stages[place + 1].links
                assert after is not None
                links.forward, after.inputs = self._queue("forward", place, place + 1)
                after.backward, links.gradients = self._queue("backward", place + 1, place)
                continue
            if "losses" in sinks:
                links.on_loss = self.sender(sinks["losses"])
            if "outputs" in sinks:
                links.on_output = self.sender(sinks["outputs"])

    def tap(self, forward: Sequence[Any], backward: Sequence[Any], debug: Mapping[str, Any]) -> None:
        """Let the program's queues see what passes between the stages.

        Raises:
            QueueTypeError: a queue that errors cannot be passed through.
        """
        for place, target in enumerate(forward):
            self._links(place).on_forward = self.sender(target, place)
        for place, target in enumerate(backward, 1):
            self._links(place).on_backward = self.sender(target, place)
        for place, stage in enumerate(self._stages):
            if stage.name in debug:
                self._links(place).on_gradients = self.sender(debug[stage.name], place)

    def sender(self, target: Any, place: int = -1) -> Send:
        """Return what puts copies of a stage's tensors into a program's queue, on every rank.

        Args:
            target: the queue, or what guards it already.
            place: of the stage.

        Raises:
            QueueTypeError: a queue that errors cannot be passed through.
        """
        sink = target if isinstance(target, GuardedQueue) else GuardedQueue.of(target, self._lifeline)
        place %= len(self._stages)

        def send(tensors: Tensors) -> None:
            # Copies: what a program reads must not change with what a stage does next.
            on_host = tuple(t.to("cpu", copy=True) for t in tensors if t is not None)
            sink.put(self._convert(on_host))

        if self._ranked is None:
            return send
        known = self._senders.get((id(sink), place))
        if known is not None:
            return known[1]
        sink.add_writer()
        shared = self._shared(
            f"queue {len(self._senders)} of {self._stages[place].name}", place, send, sink.end_writer
        )
        self._senders[id(sink), place] = sink, shared
        return shared

    def _links(self, place: int) -> Links:
        links = self._stages[place].links
        assert links is not None
        return links

    def _checkpointer(self, place: int, gather: Gather) -> Callable[[dict[str, torch.Tensor]], None] | None:
        add = gather.adder(place)
        if add is None or self._ranked is None:
            return add
        names = list(self._stages[place].parameters.named)

        def put(tensors: Tensors) -> None:
            add({name: value for name, value in zip(names, tensors, strict=True) if value is not None})

        shared = self._shared(f"checkpoint {place}", place, put, lambda error: gather.end(place, error))
        return lambda values: shared(tuple(values.values()))

    def _shared(self, key: str, place: int, send: Send, end: Callable[[PipelineError], None]) -> Send:
        if self._ranked is None:
            return send
        return self._ranked.share(key, self._ranked.ranks[place], send, end, self._entries)

    def _queue(self, kind: str, writer: int, reader: int) -> tuple[Any, Any]:
        """Return both ends of the queue between two stages; an end that is on another rank is never used."""
        ranked, key = self._ranked, f"{kind} {writer}"
        made = Channel[Any](f"{self._stages[writer].name}: {kind}", self._entries, self._lifeline)
        if ranked is None or ranked.ranks[writer] == ranked.ranks[reader]:
            return made, made
        if ranked.ranks[writer] == ranked.rank:
            return ranked.outbox(key, ranked.ranks[reader], self._entries), made
        if ranked.ranks[reader] == ranked.rank:
            return made, ranked.inbox(key, ranked.ranks[writer])
        return made, made
