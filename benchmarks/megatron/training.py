"""Training steps of a rank: buffers of gradients, the optimizer's shard, passes, and the update."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.megatron.arguments import Arguments
from benchmarks.megatron.groups import Groups
from benchmarks.megatron.layers import Shared, check, reduce
from benchmarks.megatron.model import Chunk
from benchmarks.megatron.schedule import Messages, run
from torch_loom.device._core.device_index import DEVICE_TYPE

STEPS = 2  # in the second one there is the state of the optimizer
# What Transformer Engine takes for its products, before Hopper and since.
_ENGINE_BYTES = (4 << 20, 32 << 20)


class Optimizer:
    """Adam on float32 copies of the parameters, all of them or this rank's share.

    Gradients of a rank lie in one buffer, in float32 where parameters are bfloat16. Where the optimizer is
    sharded, so do the parameters.
    """

    def __init__(self, arguments: Arguments, groups: Groups, parameters: list[nn.Parameter]) -> None:
        self.arguments, self.groups, self.parameters = arguments, groups, parameters
        device = parameters[0].device
        size = sum(each.numel() for each in parameters)
        num_shards = max(arguments.optimizer_shards, 1)
        size = -(-size // num_shards) * num_shards
        is_half = arguments.dtype == torch.float16
        self.grads = torch.zeros(size, dtype=torch.float16 if is_half else torch.float32, device=device)
        self.buffer = None
        if arguments.optimizer_shards:
            self.buffer = torch.empty(size, dtype=arguments.dtype, device=device)
        begin = 0
        for each in parameters:
            end = begin + each.numel()
            each.main_grad = self.grads[begin:end].view(each.shape)  # type: ignore[attr-defined]
            if self.buffer is not None:
                each.data = self.buffer[begin:end].view(each.shape)
            each.register_post_accumulate_grad_hook(_add_gradient)
            begin = end
        if self.buffer is None:
            self.main = [nn.Parameter(each.detach().float()) for each in parameters]
        else:
            self.own = slice(0, size // num_shards)
            self.main = [nn.Parameter(self.buffer[self.own].float())]
        self.adam = torch.optim.AdamW(self.main, fused=True)

    def clear(self) -> None:
        """Set gradients to 0."""
        self.grads.zero_()
        self.adam.zero_grad()

    def step(self, shared_embedding: torch.Tensor | None) -> None:
        """Reduce gradients over batches, and update the parameters."""
        groups = self.groups
        if self.arguments.checks:
            check(torch.linalg.vector_norm(self.grads))
        if groups.ends is not None and shared_embedding is not None:
            dist.all_reduce(shared_embedding, group=groups.ends)
        if self.buffer is None:
            reduce(self.grads, groups.data)
            grads = [each.main_grad for each in self.parameters]  # type: ignore[attr-defined]
        else:
            grads = [self.grads[self.own]]
            if groups.shards is not None:
                dist.reduce_scatter_tensor(grads[0], self.grads, group=groups.shards)
            reduce(grads[0], groups.others)
        if self.grads.dtype != torch.float32:
            grads = [each.float() for each in grads]
        for main, grad in zip(self.main, grads, strict=True):
            main.grad = grad
        # The host reads the norm, by which gradients are clipped.
        torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch.get_device_module(DEVICE_TYPE).synchronize()
        torch._foreach_mul_(grads, 1.0)
        self.adam.step()
        with torch.no_grad():
            if self.buffer is None:
                torch._foreach_copy_(self.parameters, self.main)
            else:
                self.buffer[self.own].copy_(self.main[0])
                if groups.shards is not None:
                    dist.all_gather_into_tensor(self.buffer, self.buffer[self.own], group=groups.shards)


def _add_gradient(parameter: Any) -> None:
    # None: the product has added it.
    if parameter.grad is not None:
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None


def train(arguments: Arguments, capability: int, allocated: MutableSequence[int]) -> None:
    """Train a few steps as the rank that this process is, and note the bytes allocated after the last."""
    rank = dist.get_rank()
    device = torch.device(DEVICE_TYPE, torch.get_device_module(DEVICE_TYPE).current_device())
    groups = Groups(arguments, rank)
    shared = Shared(arguments, groups, device)
    library = None
    if not arguments.is_local:
        library = torch.empty(_ENGINE_BYTES[capability >= 9], dtype=torch.uint8, device=device)
    stage, last = groups.stage, arguments.pipeline - 1
    layers = arguments.chunk_layers[stage]
    chunks = [
        Chunk(shared, count, stage == 0 and place == 0, stage == last and place == len(layers) - 1)
        for place, count in enumerate(layers)
    ]
    messages = Messages(shared) if arguments.pipeline > 1 else None
    parameters = list(dict.fromkeys(each for chunk in chunks for each in chunk.parameters()))
    embedding = None
    if arguments.is_tied and chunks[0].embedding is not None:
        embedding = chunks[0].embedding.tokens
    elif arguments.is_tied and chunks[-1].head is not None:
        embedding = chunks[-1].head.weight
    optimizer = Optimizer(arguments, groups, parameters)
    for _ in range(STEPS):
        optimizer.clear()
        run(shared, chunks, messages)
        optimizer.step(None if embedding is None else embedding.main_grad)  # type: ignore[attr-defined]
    allocated[rank] = torch.get_device_module(DEVICE_TYPE).memory_allocated(device)
    del library
