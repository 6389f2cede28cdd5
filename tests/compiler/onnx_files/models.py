"""ONNX models: small networks as PyTorch's exporters write them, and graphs given as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class _Plain(nn.Module):
    """A model of transformers that takes tensors in order, and returns them."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.names, values, strict=True)), return_dict=False)


def bert() -> Made:
    """A BERT whose second half of one text is padding."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 8:] = 0
    model = _Plain(BertModel(config), ("input_ids", "attention_mask")).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # equal ones would be written once, and trained as one
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model, (torch.randint(3, 99, (2, 16)), mask)


def resnet() -> Made:
    """A ResNet of two stages, whose statistics are those of some data."""
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    model = ResNetModel(
        ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    )
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        model(pixels)
    return _Plain(model, ("pixel_values",)).eval(), (pixels,)


MODELS: dict[str, Callable[[], Made]] = {"bert": bert, "resnet": resnet}


def saved(path: Path, model: nn.Module, inputs: tuple[torch.Tensor, ...], **how: Any) -> Path:
    """Export a model; by the exporter of traces unless ``dynamo`` is asked for."""
    torch.onnx.export(model, inputs, str(path), verbose=False, **{"dynamo": False, **how})
    return path


def parsed(body: str, signature: str = "(float[2, 3] x) => (float[2, 3] y)", opset: str = '"" : 17') -> Any:
    """Return the model of a graph in ONNX's text form."""
    import onnx

    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{opset}]>\ngraph {signature} {{ {body} }}"
    )
