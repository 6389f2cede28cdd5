"""A small vision transformer: overlapping patches to tokens, pre-norm blocks, a head on the mean token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention and a perceptron, each added to its input. Tokens in and out: [N, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attention(self, tokens: Tensor) -> Tensor:
        """Multi-head attention of every token to every token, [N, T, width] to [N, T, width]."""
        count, length, width = tokens.shape
        qkv = self.qkv(tokens).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.projection(mixed.transpose(1, 2).reshape(count, length, width) * 0.5)
        return projected

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        result: Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return result


class VisionTransformer(nn.Module):
    """Images [N, 1, size, size], of even size, to logits [N, classes]. Nothing is dropped out."""

    def __init__(
        self,
        size: int = 8,
        width: int = 64,
        depth: int = 3,
        heads: int = 4,
        classes: int = 10,
    ) -> None:
        super().__init__()
        # Patches of 3x3 pixels, 2 apart: they overlap, so no stroke is cut and less data is enough.
        self.patches = nn.Conv2d(1, width, kernel_size=3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(1, (size // 2) ** 2, width) * 0.5)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits
