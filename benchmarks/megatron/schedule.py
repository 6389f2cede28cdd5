"""In which order a stage runs its chunks, and the messages between stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.megatron.arguments import WORLD_SIZE, Arguments
from benchmarks.megatron.layers import Shared
from benchmarks.megatron.model import Batch, Chunk
from torch_loom.device._core.device_index import DEVICE_TYPE


def order(arguments: Arguments, stage: int) -> Iterator[tuple[bool, int]]:
    """Yield whether a pass goes forward, and its chunk: one forward, one backward once the stage is full."""
    pipeline, chunks, count = arguments.pipeline, arguments.num_chunks, arguments.num_microbatches
    group = arguments.microbatch_group
    forward = [
        chunk
        for begin in range(0, count, group)
        for chunk in range(chunks)
        for _ in range(min(group, count - begin))
    ]
    ahead = pipeline - stage - 1
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * group
    ahead = min(ahead, len(forward))
    for chunk in forward[:ahead]:
        yield True, chunk
    for place in range(len(forward)):
        if ahead + place < len(forward):
            yield True, forward[ahead + place]
        yield False, chunks - 1 - forward[place]


class Messages:
    """Hidden states and their gradients, from chunk to chunk and back: way 0 and way 1.

    Where a stage has one chunk, a message that goes out and the next one that comes in the other way are one
    batch, and the host waits for each batch (Megatron-LM's ``batch_p2p_comm`` and ``batch_p2p_sync``). Where
    it has several, each message goes by itself, and the host goes on (``overlap_p2p_comm``).
    """

    def __init__(self, shared: Shared) -> None:
        own, groups = shared.arguments, shared.groups
        length = own.length // own.context // (own.tensor if own.sequence_parallel else 1)
        self.shape = (length, own.micro_batch, own.hidden)
        self.shared = shared
        first = groups.rank % groups.of_stage
        ranks = list(range(first, WORLD_SIZE, groups.of_stage))
        self.is_batched = own.num_chunks == 1
        # Each way has its own where messages go by themselves: they are received in the order of sending.
        ways = [dist.new_group(ranks) for _ in range(1 if self.is_batched else 2)]
        self.ways = [ways[0], ways[-1]]
        self.next = (groups.rank + groups.of_stage) % WORLD_SIZE
        self.previous = (groups.rank - groups.of_stage) % WORLD_SIZE
        self._kept: tuple[dist.P2POp, int] | None = None

    def receive(self, way: int, comes: bool) -> torch.Tensor | None:
        """Return what comes for the next pass, where something does.

        What was kept to be sent goes with it where it goes the other way, else before it.
        """
        if self._kept is not None and (self._kept[1] == way or not comes):
            self.flush()
        if not comes:
            return None
        own = self.shared.arguments
        x = torch.empty(self.shape, dtype=own.dtype, device=self.shared.device)
        received = dist.P2POp(dist.irecv, x, self.next if way else self.previous, self.ways[way])
        kept, self._kept = self._kept, None
        self._run([received] if kept is None else [kept[0], received])
        return x

    def send(self, x: torch.Tensor, way: int) -> None:
        """Send it, where it is batched with the next message that comes."""
        sent = dist.P2POp(dist.isend, x, self.previous if way else self.next, self.ways[way])
        if self.is_batched:
            self._kept = sent, way
        else:
            sent.op(sent.tensor, sent.peer, sent.group)

    def flush(self) -> None:
        """Send what was kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._run([kept[0]])

    def _run(self, ops: list[dist.P2POp]) -> None:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        if self.is_batched:
            torch.get_device_module(DEVICE_TYPE).synchronize()


def run(shared: Shared, chunks: list[Chunk], messages: Messages | None) -> None:
    """Run forward and backward passes of all micro-batches of a step."""
    own, stage = shared.arguments, shared.groups.stage
    waiting: list[deque[tuple[Any, torch.Tensor]]] = [deque() for _ in chunks]
    batch = Batch(shared)
    for is_forward, number in order(own, stage):
        chunk = chunks[number]
        has_before, has_after = chunk.embedding is None, chunk.head is None
        received = None
        if messages is not None:
            received = messages.receive(0, has_before) if is_forward else messages.receive(1, has_after)
        if is_forward:
            if number == 0 or chunk.head is not None:
                batch = Batch(shared)
            if received is not None:
                received.requires_grad_()
            y = chunk(received, batch)
            if messages is not None and has_after:
                messages.send(y.detach(), 0)
            else:
                y = y / own.num_microbatches
            waiting[number].append((received, y))
            del y
        else:
            x, y = waiting[number].popleft()
            torch.autograd.backward(y, received)
            del y
            if messages is not None and x is not None:
                messages.send(x.grad, 1)
            del x
        del received
    if messages is not None:
        messages.flush()
