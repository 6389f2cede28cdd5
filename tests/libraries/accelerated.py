"""accelerate: training loops in its precisions, and inference of models that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.libraries.common import assert_on_cuda, tiny_llama


@pytest.fixture(autouse=True)
def _fresh_state() -> Any:
    accelerate.state.AcceleratorState._reset_state(True)
    yield
    accelerate.state.AcceleratorState._reset_state(True)


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_training(precision: str, tmp_path: Path) -> None:
    set_seed(0)
    accelerator = Accelerator(mixed_precision=precision)
    assert accelerator.device.type == "cuda"
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    data = torch.randn(128, 8)
    loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses = []
    for _ in range(4):
        for x, y in loader:
            assert x.is_cuda
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    assert_on_cuda(model.parameters())
    assert sum(losses[-4:]) < sum(losses[:4]) / 2
    accelerator.save_state(str(tmp_path))
    accelerator.load_state(str(tmp_path))


def test_big_model_inference(tmp_path: Path) -> None:
    reference = tiny_llama(4).eval()
    accelerator = Accelerator()
    accelerator.save_model(reference, tmp_path)
    with accelerate.init_empty_weights():
        empty = type(reference)(reference.config)
    size = sum(parameter.nbytes for parameter in reference.parameters())
    model = accelerate.load_checkpoint_and_dispatch(
        empty.eval(),
        tmp_path,
        device_map="auto",
        max_memory={0: size // 2, "cpu": "1GB"},
        no_split_module_classes=["LlamaDecoderLayer"],
    )
    tokens = torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        expected = reference(tokens).logits
        torch.testing.assert_close(model(tokens).logits.cpu(), expected)


def test_cpu_offload_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    x = torch.randn(3, 4)
    expected = model(x)
    accelerate.cpu_offload(model, execution_device=torch.device("cuda:0"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    torch.testing.assert_close(model(x), expected)
    assert torch.cuda.max_memory_allocated() > 0


def test_find_executable_batch_size() -> None:
    from accelerate.utils import find_executable_batch_size

    capacity = torch.cuda.mem_get_info()[1]
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        torch.empty(batch_size, capacity // 20, dtype=torch.uint8, device="cuda")
        return batch_size

    assert train() < 20
    assert tried[0] == 64
