"""Twenty architectures of transformers at small sizes, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, dict[str, torch.Tensor]]

_WORDS = 99
_TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_IMAGE = {**_TEXT, "image_size": 32, "patch_size": 8}


def _ids(rows: int = 2, length: int = 16) -> torch.Tensor:
    return torch.randint(3, _WORDS, (rows, length))


def _pixels(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def _of(name: str, inputs: Callable[[], dict[str, torch.Tensor]], **config: Any) -> Callable[[], Made]:
    def made() -> Made:
        import transformers

        cls = getattr(transformers, name)
        torch.manual_seed(0)
        return cls(cls.config_class(**config)).eval(), inputs()

    return made


def _text(name: str, **config: Any) -> Callable[[], Made]:
    return _of(name, lambda: {"input_ids": _ids()}, vocab_size=_WORDS, pad_token_id=0, **config)


def _image(name: str, size: int = 32, **config: Any) -> Callable[[], Made]:
    return _of(name, lambda: {"pixel_values": _pixels(size)}, **config)


def _clip() -> Made:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    text = {**_TEXT, "vocab_size": _WORDS, "eos_token_id": 2}
    config = CLIPConfig(text_config=text, vision_config=_IMAGE, projection_dim=32)
    return CLIPModel(config).eval(), {"input_ids": _ids(), "pixel_values": _pixels()}


_DECODER = {**_TEXT, "use_cache": False}
_SEQ2SEQ = {"d_model": 64, "use_cache": False, "decoder_start_token_id": 1}
ARCHITECTURES: dict[str, Callable[[], Made]] = {
    "bert": _text("BertModel", **_TEXT),
    "distilbert": _text("DistilBertModel", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "roberta": _text("RobertaModel", **_TEXT),
    "albert": _text("AlbertModel", embedding_size=32, **_TEXT),
    "gpt2": _text("GPT2Model", n_embd=64, n_layer=2, n_head=4, use_cache=False),
    "gpt_neo": _text(
        "GPTNeoModel",
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        use_cache=False,
    ),
    "opt": _text(
        "OPTModel",
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=128,
        word_embed_proj_dim=64,
        use_cache=False,
    ),
    "llama": _text("LlamaModel", num_key_value_heads=2, **_DECODER),
    "qwen2": _text("Qwen2Model", num_key_value_heads=2, **_DECODER),
    "t5": _of(
        "T5Model",
        lambda: {"input_ids": _ids(), "decoder_input_ids": _ids(length=8)},
        vocab_size=_WORDS,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        **_SEQ2SEQ,
    ),
    "whisper": _of(
        "WhisperModel",
        lambda: {"input_features": torch.randn(2, 16, 64), "decoder_input_ids": _ids(length=8)},
        vocab_size=_WORDS,
        num_mel_bins=16,
        max_source_positions=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        pad_token_id=0,
        **_SEQ2SEQ,
    ),
    "vit": _image("ViTModel", **_IMAGE),
    "deit": _image("DeiTModel", **_IMAGE),
    "beit": _image("BeitModel", **_IMAGE),
    "swin": _image(
        "SwinModel", image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "convnext": _image("ConvNextModel", hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1]),
    "resnet": _image(
        "ResNetModel", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    ),
    "mobilenet_v2": _image("MobileNetV2Model", size=64, depth_multiplier=0.25, image_size=64),
    "segformer": _image(
        "SegformerModel",
        hidden_sizes=[16, 16, 32, 32],
        num_attention_heads=[1, 2, 2, 4],
        depths=[1, 1, 1, 1],
    ),
    "clip": _clip,
}
