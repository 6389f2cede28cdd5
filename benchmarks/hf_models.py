"""The thirteen models of the reference measurements, from their configuration classes, and a step of each.

They come from the package transformers and have random weights; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

# Ids are drawn below this; every vocabulary is larger.
MAX_TOKEN = 1000
DECODER_LENGTH = 64

Build = Callable[[Any], nn.Module]

_RESNET_18 = {
    "embedding_size": 64,
    "hidden_sizes": [64, 128, 256, 512],
    "depths": [2, 2, 2, 2],
    "layer_type": "basic",
}
_OPT_125M = {
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "word_embed_proj_dim": 768,
}
_LLAMA_160M = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "vocab_size": 32_000,
}
_LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
}

MODELS: Mapping[str, Build] = {
    "bert-base": lambda t: t.BertForSequenceClassification(t.BertConfig()),
    "distilbert": lambda t: t.DistilBertForSequenceClassification(t.DistilBertConfig()),
    "gpt2": lambda t: t.GPT2LMHeadModel(t.GPT2Config()),
    "opt-125m": lambda t: t.OPTForCausalLM(t.OPTConfig(**_OPT_125M)),
    "llama-160m": lambda t: t.LlamaForCausalLM(t.LlamaConfig(**_LLAMA_160M)),
    "llama-1b": lambda t: t.LlamaForCausalLM(t.LlamaConfig(**_LLAMA_1B)),
    "t5-small": lambda t: t.T5ForConditionalGeneration(t.T5Config(decoder_start_token_id=0)),
    "vit-base": lambda t: t.ViTForImageClassification(t.ViTConfig()),
    "resnet-50": lambda t: t.ResNetForImageClassification(t.ResNetConfig()),
    "resnet-18": lambda t: t.ResNetForImageClassification(t.ResNetConfig(**_RESNET_18)),
    "convnext-tiny": lambda t: t.ConvNextForImageClassification(t.ConvNextConfig()),
    "swin-tiny": lambda t: t.SwinForImageClassification(t.SwinConfig()),
    "mobilenet-v2": lambda t: t.MobileNetV2ForImageClassification(t.MobileNetV2Config()),
}
IMAGES = ("vit-base", "resnet-50", "resnet-18", "convnext-tiny", "swin-tiny", "mobilenet-v2")


def build(name: str, dtype: torch.dtype, train: bool, device: str) -> nn.Module:
    """Return a model with its parameters made on ``device``."""
    import transformers

    transformers.logging.set_verbosity_error()
    with torch.device(device):
        model = MODELS[name](transformers)
    return model.to(dtype).train(train)


def inputs(name: str, shape: list[int], dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Return a batch: token ids ``[batch, sequence]``, or images for ``[batch, size]``."""
    batch, size = shape
    if name in IMAGES:
        return {"pixel_values": torch.empty(batch, 3, size, size, dtype=dtype, device=device)}
    found = {"input_ids": torch.zeros(batch, size, dtype=torch.long, device=device)}
    if name == "t5-small":
        found["decoder_input_ids"] = torch.zeros(batch, DECODER_LENGTH, dtype=torch.long, device=device)
    return found


def step(model: nn.Module, batch: Mapping[str, Any], optimizer: torch.optim.Optimizer | None) -> None:
    """Run one step as it was measured: inference, or a training step where there is an optimizer."""
    config: Any = model.config
    is_decoder = model.can_generate() and not config.is_encoder_decoder
    if optimizer is None:
        with torch.no_grad():
            model(**batch, **({"use_cache": False} if is_decoder else {}))
        return
    optimizer.zero_grad(set_to_none=True)
    # The output lives until the step has ended.
    output = model(**batch, **({"use_cache": False} if model.can_generate() else {}))
    output.logits.float().square().mean().backward()
    optimizer.step()
