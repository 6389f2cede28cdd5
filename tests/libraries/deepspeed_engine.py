"""DeepSpeed: its engine on one device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.libraries.common import assert_on_cuda

deepspeed = pytest.importorskip("deepspeed")


@pytest.mark.report(
    "deepspeedai/DeepSpeed", "the engine in bfloat16 without sharding: device, backend, steps"
)
def test_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in one.items():
        monkeypatch.setenv(name, value)
    accelerator = deepspeed.accelerator.get_accelerator()
    assert (accelerator.device_name(), accelerator.communication_backend_name()) == ("cuda", "nccl")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    assert_on_cuda(engine.parameters())
    x = torch.randn(4, 16, device=engine.device, dtype=torch.bfloat16)
    losses = []
    for _ in range(8):
        loss = engine(x).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.9
    torch.distributed.destroy_process_group()
