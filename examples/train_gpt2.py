"""Trains a GPT of GPT-2's size on random tokens, on `cuda`: what `loom plan` and `loom run` take as it is.

loom plan --chip h200 --html plan.html examples/train_gpt2.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT, BATCH = 12, 768, 12, 50257, 1024, 4


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            self.project(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        out: torch.Tensor = x + self.contract(functional.gelu(self.expand(self.norm2(x))))
        return out


class GPT(nn.Module):
    """Tokens [N, T] to logits [N, T, VOCABULARY]; the embedding is the last layer's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.tokens(tokens) + self.places(places)))
        return functional.linear(x, self.tokens.weight)


def main() -> None:
    model = GPT().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(3):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
