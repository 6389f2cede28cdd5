"""The groups that a rank belongs to, and collectives over them that autograd knows."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Function

from benchmarks.megatron.arguments import WORLD_SIZE, Arguments


class Groups:
    """Of a rank: ranks of a stage that follow each other split tensors, then sequences, then batches."""

    def __init__(self, arguments: Arguments, rank: int) -> None:
        tensor, context, pipeline = arguments.tensor, arguments.context, arguments.pipeline
        of_stage = WORLD_SIZE // pipeline
        self.rank = rank
        self.stage, within = divmod(rank, of_stage)
        self.of_stage = of_stage
        self.tensor = self._group(tensor, rank - rank % tensor, 1)
        self.context = self._group(context, rank - within % (tensor * context) + rank % tensor, tensor)
        # Gradients are those of all sequences, whole or split.
        self.data = self._group(of_stage // tensor, rank - within + rank % tensor, tensor)
        # Of these, those that share an optimizer follow each other.
        shards = max(arguments.optimizer_shards, 1)
        first = within // (tensor * shards) * tensor * shards
        self.shards = self._group(shards, rank - within + first + rank % tensor, tensor)
        # The ranks with the same share of other optimizers.
        num_others = of_stage // tensor // shards if arguments.optimizer_shards else 1
        self.others = self._group(num_others, rank - within + within % (tensor * shards), tensor * shards)
        # The first and the last stage share the embedding.
        ends = [within, WORLD_SIZE - of_stage + within]
        self.ends = dist.new_group(ends) if pipeline > 1 and rank in ends else None

    @staticmethod
    def _group(count: int, first: int, step: int) -> Any:
        return None if count == 1 else dist.new_group([first + step * place for place in range(count)])


class Scattered(Function):
    """The sum over a group, of which each rank keeps its part of the sequence."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return scattered(x, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gathered(grad, ctx.group), None


def gathered(x: torch.Tensor, group: Any) -> torch.Tensor:
    """Return ``[time of all, …]`` of each rank's ``[time, …]``."""
    whole = x.new_empty(x.shape[0] * dist.get_world_size(group), *x.shape[1:])
    dist.all_gather_into_tensor(whole, x.contiguous(), group=group)
    return whole


def scattered(x: torch.Tensor, group: Any) -> torch.Tensor:
    """Return a rank's ``[time, …]`` of the sum of ``[time of all, …]``."""
    part = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(part, x.contiguous(), group=group)
    return part
