"""The chunk of a model that a stage has: embeddings at the first one, logits and loss at the last."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.megatron.groups import Scattered
from benchmarks.megatron.layers import Activated, Column, Layer, Loss, Norm, Shared, check


class Batch:
    """Tokens of a micro-batch with what loaders put beside them, on the device."""

    def __init__(self, shared: Shared) -> None:
        own, device = shared.arguments, shared.device
        length = own.length // own.context
        size = (own.micro_batch, length)
        self.tokens = torch.zeros(size, dtype=torch.long, device=device)
        self.labels = torch.zeros(size, dtype=torch.long, device=device)
        self.positions = torch.zeros(size, dtype=torch.long, device=device)
        self.weights = torch.ones(size, dtype=torch.float32, device=device)
        self.mask = torch.ones(own.micro_batch, 1, length, length, dtype=torch.bool, device=device)
        self.decoder_tokens = self.tokens
        if own.family == "t5":
            size = (own.micro_batch, own.decoder_length)
            self.decoder_tokens = torch.zeros(size, dtype=torch.long, device=device)
            self.labels = torch.zeros(size, dtype=torch.long, device=device)
            self.weights = torch.ones(size, dtype=torch.float32, device=device)


class Embedding(nn.Module):
    """Of tokens, the vocabulary split over ranks, and of positions; ``[time, batch, hidden]``."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        own = shared.arguments
        self.shared = shared
        self.tokens = shared.weight(own.vocabulary // own.tensor, own.hidden)
        self.positions = shared.weight(own.positions, own.hidden) if own.positions else None
        self.kinds = shared.weight(2, own.hidden) if own.family == "bert" else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        own, group = self.shared.arguments, self.shared.groups.tensor
        x = functional.embedding(tokens, self.tokens)
        if group is not None and not own.sequence_parallel:
            x = Summed.apply(x, group)
        if group is not None and own.sequence_parallel:
            x = Scattered.apply(x.transpose(0, 1).contiguous(), group)
        length = tokens.shape[1]
        if own.sequence_parallel:
            places = None if self.positions is None else self.positions[: length // own.tensor].unsqueeze(1)
        else:
            places = None if self.positions is None else self.positions[:length]
        if places is not None:
            x = x + places
        if self.kinds is not None:
            x = x + self.kinds[0]
        if not own.sequence_parallel:
            x = x.transpose(0, 1).contiguous()
        return functional.dropout(x, own.hidden_dropout)


class Summed(torch.autograd.Function):
    """The sum over a group, of which each rank has the gradient."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, group: object) -> torch.Tensor:
        dist.all_reduce(x, group=group)  # type: ignore[arg-type]
        return x

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class Head(nn.Module):
    """The loss: logits of a rank's part of the vocabulary, their cross entropy, its mean."""

    def __init__(self, shared: Shared, tied: nn.Parameter | None) -> None:
        super().__init__()
        own = shared.arguments
        self.shared = shared
        self.weight = shared.weight(own.vocabulary // own.tensor, own.hidden) if tied is None else tied
        self.before = None
        if own.family == "bert":
            self.before = nn.ParameterList((shared.weight(own.hidden, own.hidden), shared.weight(own.hidden)))
            self.before_norm = Norm(shared, own.hidden)
            self.pooler = nn.ParameterList((shared.weight(own.hidden, own.hidden), shared.weight(own.hidden)))
            self.binary = nn.ParameterList((shared.weight(2, own.hidden), shared.weight(2)))
        self.bias = shared.weight(own.vocabulary // own.tensor) if own.family in ("bert", "t5") else None

    def forward(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        own, groups = self.shared.arguments, self.shared.groups
        binary = None
        if self.before is not None:
            pooled = torch.tanh(functional.linear(x[0], *self.pooler))
            binary = functional.linear(pooled, *self.binary)
            x = Column.apply(x, *self.before, None, False)
            x = self.before_norm(Activated.apply(x, None, False))
        logits = Column.apply(x, self.weight, self.bias, groups.tensor, own.sequence_parallel)
        if own.family == "bert":
            logits = logits.transpose(0, 1).contiguous().transpose(0, 1)
        losses = Loss.apply(logits.float(), batch.labels.t(), groups.tensor, own.fuses_loss)
        del logits
        loss = (losses.t().contiguous().float().view(-1) * batch.weights.view(-1)).sum() / batch.weights.sum()
        if binary is not None:
            loss = loss + functional.cross_entropy(binary.float(), batch.labels[:, 0])
        if own.checks:
            check(loss)
        reported = loss.detach().clone()
        if groups.data is not None:
            dist.all_reduce(reported, group=groups.data)
        return loss


class Chunk(nn.Module):
    """Layers of a stage that follow each other, with what the first and the last chunk have besides."""

    def __init__(self, shared: Shared, num_layers: int, is_first: bool, is_last: bool) -> None:
        super().__init__()
        own = shared.arguments
        self.shared = shared
        self.embedding = Embedding(shared) if is_first else None
        self.layers = nn.ModuleList(Layer(shared) for _ in range(num_layers))
        self.decoder = nn.ModuleList(Layer(shared, is_cross=True) for _ in range(own.num_decoder_layers))
        self.norm = self.decoder_norm = self.head = None
        if is_last:
            self.norm = Norm(shared, own.hidden)
            self.decoder_norm = Norm(shared, own.hidden) if self.decoder else None
            tied = self.embedding.tokens if self.embedding is not None and own.is_tied else None
            self.head = Head(shared, tied)

    def forward(self, x: torch.Tensor | None, batch: Batch) -> torch.Tensor:
        """Return the hidden states for the next chunk, or the loss."""
        if self.embedding is not None:
            x = self.embedding(batch.tokens)
        assert x is not None
        x = self._through(self.layers, x, None)
        if self.norm is None or self.head is None:
            return x
        x = self.norm(x)
        if self.decoder_norm is not None:
            assert self.embedding is not None
            x = self._through(self.decoder, self.embedding(batch.decoder_tokens), x)
            x = self.decoder_norm(x)
        return self.head(x, batch)

    def _through(self, layers: nn.ModuleList, x: torch.Tensor, memory: torch.Tensor | None) -> torch.Tensor:
        for layer in layers:
            if self.shared.arguments.recomputes:
                x = checkpoint(layer, x, memory, use_reentrant=True)
            else:
                x = layer(x, memory)
        return x
