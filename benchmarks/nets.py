"""The networks that `models.py` times: the shapes of well-known ones, written out in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut, [N, C, H, W] to [N, C', H/stride, W/stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Images [N, 3, H, W] to logits [N, 1000]: a 7x7 stem, four stages of two blocks, 11.7 M weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        )
        widths = (64, 64, 128, 256, 512)
        blocks: list[nn.Module] = []
        for stage in range(4):
            blocks.append(BasicBlock(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(BasicBlock(widths[stage + 1], widths[stage + 1], 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class DecoderBlock(nn.Module):
    """Pre-norm causal attention and a perceptron. Tokens in and out: [N, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        count, length, width = tokens.shape
        qkv = self.qkv(self.norm1(tokens)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.projection(mixed.transpose(1, 2).reshape(count, length, width))
        return tokens + self.mlp(self.norm2(tokens))


class GPT(nn.Module):
    """Token ids [N, T] to logits [N, T, vocabulary]."""

    def __init__(self, layers: int = 6, width: int = 256, heads: int = 8, vocabulary: int = 512) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(DecoderBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))


class LSTMClassifier(nn.Module):
    """Sequences [N, T, width] to logits [N, classes], from the last step of a two-layer LSTM."""

    def __init__(self, width: int = 256, layers: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def mlp() -> nn.Module:
    """Returns the perceptron 64-128-10."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
