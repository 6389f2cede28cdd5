"""What libraries ask of a GPU before anything else: versions, precisions, what they may quantize to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_training_arguments(tmp_path: Path, precision: str) -> None:
    from transformers import TrainingArguments
    from transformers.utils import is_torch_tf32_available

    assert torch.version.cuda is not None
    assert is_torch_tf32_available()
    try:
        arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], **{precision: True})
        assert getattr(arguments, precision)
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.cudnn.conv.fp32_precision = "none"


@pytest.mark.parametrize(
    "name",
    [
        "Int8WeightOnlyConfig",
        "Int8DynamicActivationInt8WeightConfig",
        "Float8WeightOnlyConfig",
        "Float8DynamicActivationFloat8WeightConfig",
    ],
)
def test_quantization_by_torchao(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    from torchao.utils import is_sm_at_least_89, is_sm_at_least_90

    assert is_sm_at_least_89()
    assert is_sm_at_least_90()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32)).to("cuda", torch.bfloat16)
    x = torch.randn(32, 128, device="cuda", dtype=torch.bfloat16)
    expected = model(x)
    quantization.quantize_(model, getattr(quantization, name)())
    found = model(x)
    assert found.is_cuda
    torch.testing.assert_close(found, expected, rtol=0, atol=0.08)
    assert not found.equal(expected)


def test_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    deepspeed = pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for variable, value in {**ranks, "MASTER_PORT": "29517"}.items():
        monkeypatch.setenv(variable, value)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    x = torch.randn(4, 16, device=engine.device, dtype=torch.bfloat16)
    losses = []
    for _ in range(5):
        loss = engine(x).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert engine.device.type == "cuda"
    assert losses[-1] < losses[0]
    engine.destroy()
    torch.distributed.destroy_process_group()


def test_kernels_that_need_a_gpu_are_said_to_be_missing() -> None:
    attention = pytest.importorskip("xformers.ops", reason="xformers is not installed")
    q = torch.randn(2, 64, 4, 32, device="cuda", dtype=torch.float16)
    with pytest.raises(
        NotImplementedError, match="No operator found for `memory_efficient_attention_forward`"
    ):
        attention.memory_efficient_attention(q, q, q)
