"""What the programs share: tiny models with random weights, and where their parameters must be."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

VOCABULARY = 64


def tiny_llama(layers: int = 2) -> nn.Module:
    """Return a causal language model of 64 tokens, on the CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def assert_on_cuda(parameters: Iterable[torch.Tensor]) -> None:
    """Assert that there are parameters, and that all of them are CUDA tensors."""
    devices = {parameter.device.type for parameter in parameters}
    assert devices == {"cuda"}, devices


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences that count upwards, which a model learns at once: 16 tokens each."""

    def __init__(self, length: int = 64) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(16) + index) % (VOCABULARY - 3) + 3
        return {"input_ids": tokens, "labels": tokens}
