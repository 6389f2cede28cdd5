"""bitsandbytes and torchao: layers and optimizers of few bits, on weights of a GPU."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.report("bitsandbytes-foundation/bitsandbytes", "`Linear8bitLt` and `Linear4bit` on CUDA tensors")
@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    [
        ("Linear8bitLt", {"has_fp16_weights": False}, 0.02),
        ("Linear4bit", {"quant_type": "nf4", "compute_dtype": torch.bfloat16}, 0.15),
        ("Linear4bit", {"quant_type": "fp4", "compute_dtype": torch.bfloat16}, 0.2),
        ("Linear4bit", {"quant_type": "nf4", "compress_statistics": True}, 0.15),
    ],
)
def test_layers(name: str, options: dict[str, Any], tolerance: float) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    plain = nn.Linear(64, 64)
    layer = getattr(bitsandbytes.nn, name)(64, 64, **options)
    layer.load_state_dict(plain.state_dict())
    layer = layer.to("cuda")
    assert layer.weight.dtype in (torch.int8, torch.uint8)
    x = torch.randn(4, 64, device="cuda", dtype=torch.float16, requires_grad=True)
    found, expected = layer(x), plain.cuda()(x.float())
    assert found.is_cuda
    assert relative_error(found, expected) < tolerance
    found.sum().backward()
    assert relative_error(x.grad, plain.weight.sum(0).expand(4, 64)) < tolerance
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)["weight"], layer.weight)


@pytest.mark.report(
    "bitsandbytes-foundation/bitsandbytes", "8-bit optimizers on CUDA tensors, paged ones too"
)
@pytest.mark.parametrize("name", ["AdamW8bit", "PagedAdamW8bit", "Lion8bit", "AdamW"])
def test_optimizers(name: str) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda()  # 8192 weights: 8 bits
    optimizer = getattr(bitsandbytes.optim, name)(model.parameters(), lr=1e-3)
    x = torch.randn(32, 64, device="cuda")
    losses = []
    for _ in range(20):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.9
    states = [value for value in optimizer.state[model[0].weight].values() if torch.is_tensor(value)]
    assert any(value.dtype == torch.uint8 for value in states) == ("8bit" in name)


@pytest.mark.report("pytorch/ao", "float8 and int8 configurations quantise a model on an H100 or newer")
@pytest.mark.parametrize(
    "name",
    [
        "Int8WeightOnlyConfig",
        "Int8DynamicActivationInt8WeightConfig",
        "Float8WeightOnlyConfig",
        pytest.param(
            "Float8DynamicActivationFloat8WeightConfig",
        ),
    ],
)
def test_torchao(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32)).to("cuda", torch.bfloat16)
    x = torch.randn(32, 128, device="cuda", dtype=torch.bfloat16)
    expected = model(x)
    quantized = copy.deepcopy(model)
    quantization.quantize_(quantized, getattr(quantization, name)())
    assert type(quantized[0].weight.data) is not torch.Tensor
    assert relative_error(quantized(x), expected) < 0.1


@pytest.mark.report("pytorch/ao", "int4 weights need a package of compiled kernels: torchao's own message")
def test_torchao_without_its_kernels() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(nn.Linear(128, 64)).to("cuda", torch.bfloat16)
    with pytest.raises(ImportError, match="Requires mslk"):
        quantization.quantize_(model, quantization.Int4WeightOnlyConfig())
