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
    """Hidden states and their gradients, from chunk to chunk and back."""

    def __init__(self, shared: Shared) -> None:
        own, groups = shared.arguments, shared.groups
        length = own.length // own.context // (own.tensor if own.sequence_parallel else 1)
        self.shape = (length, own.micro_batch, own.hidden)
        self.shared = shared
        first = groups.rank % groups.of_stage
        ranks = list(range(first, WORLD_SIZE, groups.of_stage))
        # Each way has its own, so that messages are received in the order in which they are sent.
        self.ways = [dist.new_group(ranks) for _ in range(2)]
        self.next = (groups.rank + groups.of_stage) % WORLD_SIZE
        self.previous = (groups.rank - groups.of_stage) % WORLD_SIZE

    def receive(self, way: int) -> torch.Tensor:
        """Return what comes: 0, hidden states from the stage before; 1, gradients from the stage after."""
        own = self.shared.arguments
        x = torch.empty(self.shape, dtype=own.dtype, device=self.shared.device)
        work = dist.irecv(x, self.next if way else self.previous, group=self.ways[way])
        assert work is not None
        work.wait()
        return x

    def send(self, x: torch.Tensor, way: int) -> None:
        """Send it: 0, to the stage after; 1, to the stage before."""
        dist.isend(x, self.previous if way else self.next, group=self.ways[way])


def run(shared: Shared, chunks: list[Chunk], messages: Messages | None) -> None:
    """Run forward and backward passes of all micro-batches of a step."""
    own, stage = shared.arguments, shared.groups.stage
    waiting: list[deque[tuple[Any, torch.Tensor]]] = [deque() for _ in chunks]
    batch = Batch(shared)
    for is_forward, number in order(own, stage):
        chunk = chunks[number]
        has_before, has_after = chunk.embedding is None, chunk.head is None
        if is_forward:
            if number == 0 or chunk.head is not None:
                batch = Batch(shared)
            x = None
            if has_before:
                assert messages is not None
                x = messages.receive(0).requires_grad_()
            y = chunk(x, batch)
            if has_after:
                assert messages is not None
                messages.send(y.detach(), 0)
            else:
                y = y / own.num_microbatches
            waiting[number].append((x, y))
            del x, y
        else:
            x, y = waiting[number].popleft()
            grad = None
            if has_after:
                assert messages is not None
                grad = messages.receive(1)
            torch.autograd.backward(y, grad)
            del y, grad
            if x is not None:
                assert messages is not None
                messages.send(x.grad, 1)
            del x
