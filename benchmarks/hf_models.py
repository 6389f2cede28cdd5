"""The models of the measured steps, from their configuration classes, and a step of each.

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

_BART_BASE = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}
_OPT_350M = {**_OPT_125M, "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24}
_OPT_350M |= {"num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": False}
_BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
_BERT_LARGE |= {"intermediate_size": 4096}
_EFFICIENTNET_B0 = {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0}
_EFFICIENTNET_B0 |= {"hidden_dim": 1280, "dropout_rate": 0.2}
_REGNET_X = {"hidden_sizes": [32, 64, 160, 384], "depths": [2, 4, 10, 2], "groups_width": 16}


def _llama_like(hidden: int, inner: int, layers: int, heads: int, shared: int = 0) -> dict[str, Any]:
    found = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    found["num_attention_heads"] = heads
    return {**found, "num_key_value_heads": shared} if shared else found


def _images(name: str, **sizes: Any) -> Build:
    return lambda t: getattr(t, f"{name}ForImageClassification")(getattr(t, f"{name}Config")(**sizes))


def _texts(name: str, **sizes: Any) -> Build:
    return lambda t: getattr(t, f"{name}ForSequenceClassification")(getattr(t, f"{name}Config")(**sizes))


def _writers(name: str, **sizes: Any) -> Build:
    return lambda t: getattr(t, f"{name}ForCausalLM")(getattr(t, f"{name}Config")(**sizes))


# Of pictures, of texts in, and of texts out: the last know what they generate.
_OF_IMAGES: Mapping[str, Build] = {
    "vit-base": _images("ViT"),
    "resnet-50": _images("ResNet"),
    "resnet-18": _images("ResNet", **_RESNET_18),
    "convnext-tiny": _images("ConvNext"),
    "swin-tiny": _images("Swin"),
    "mobilenet-v2": _images("MobileNetV2"),
    "deit-base": _images("DeiT"),
    "vit-small": _images("ViT", hidden_size=384, num_attention_heads=6, intermediate_size=1536),
    "dinov2-base": _images("Dinov2"),
    "beit-base": _images("Beit"),
    "resnet-101": _images("ResNet", depths=[3, 4, 23, 3]),
    "resnet-26": _images("ResNet", depths=[2, 2, 2, 2]),
    "regnet-y-040": _images("RegNet"),
    "regnet-x": _images("RegNet", layer_type="x", **_REGNET_X),
    "convnext-small": _images("ConvNext", depths=[3, 3, 27, 3]),
    "convnextv2-tiny": _images("ConvNextV2"),
    "mobilenet-v1": _images("MobileNetV1"),
    "efficientnet-b0": _images("EfficientNet", **_EFFICIENTNET_B0),
    "swin-small": _images("Swin", depths=[2, 2, 18, 2]),
    "swinv2-tiny": _images("Swinv2", image_size=224),
    "mobilevit-small": _images("MobileViT", image_size=224),
    "poolformer-s12": _images("PoolFormer"),
    "segformer-b0": _images("Segformer"),
    "bit-50": _images("Bit"),
    "focalnet-tiny": _images("FocalNet"),
    "pvt-tiny": _images("Pvt"),
    "levit-128s": _images("Levit"),
    "cvt-13": _images("Cvt"),
}
_OF_TEXTS: Mapping[str, Build] = {
    "bert-base": _texts("Bert"),
    "distilbert": _texts("DistilBert"),
    "roberta-base": _texts("Roberta", max_position_embeddings=514),
    "bert-large": _texts("Bert", **_BERT_LARGE),
    "albert-base": _texts("Albert", hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "electra-small": _texts("Electra"),
    "modernbert-base": _texts("ModernBert"),
    "gpt2": lambda t: t.GPT2LMHeadModel(t.GPT2Config()),
    "gpt2-medium": lambda t: t.GPT2LMHeadModel(t.GPT2Config(n_embd=1024, n_layer=24, n_head=16)),
    "opt-125m": _writers("OPT", **_OPT_125M),
    "opt-350m": _writers("OPT", **_OPT_350M),
    "gpt-neo-125m": _writers(
        "GPTNeo", hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]]
    ),
    "pythia-160m": _writers("GPTNeoX", **_llama_like(768, 3072, 12, 12)),
    "llama-160m": _writers("Llama", **_LLAMA_160M),
    "llama-350m": _writers("Llama", vocab_size=32_000, **_llama_like(1024, 2816, 24, 16, 8)),
    "llama-1b": _writers("Llama", **_LLAMA_1B),
    "qwen2-0.5b": _writers("Qwen2", **_llama_like(896, 4864, 24, 14, 2)),
    "qwen3-0.6b": _writers("Qwen3", head_dim=128, **_llama_like(1024, 3072, 28, 16, 8)),
    "mistral-small": _writers("Mistral", **_llama_like(1024, 3584, 12, 16, 4)),
    "gemma-small": _writers("Gemma", head_dim=128, vocab_size=64_000, **_llama_like(1024, 4096, 8, 8, 1)),
    "phi-small": _writers("Phi", **_llama_like(1024, 4096, 12, 16)),
    "bloom-560m": _writers("Bloom", hidden_size=1024, n_layer=12, n_head=16, vocab_size=50_000),
    "mixtral-tiny": _writers("Mixtral", num_local_experts=4, **_llama_like(512, 1024, 6, 8, 4)),
    "t5-small": lambda t: t.T5ForConditionalGeneration(t.T5Config(decoder_start_token_id=0)),
    "t5-base": lambda t: t.T5ForConditionalGeneration(
        t.T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)
    ),
    "bart-base": lambda t: t.BartForConditionalGeneration(t.BartConfig(**_BART_BASE)),
}
MODELS: Mapping[str, Build] = {**_OF_TEXTS, **_OF_IMAGES}
IMAGES = tuple(_OF_IMAGES)
_TRANSLATORS = ("t5-small", "t5-base", "bart-base")


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
    if name in _TRANSLATORS:
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
