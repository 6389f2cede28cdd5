"""Lightning's Trainer: it chooses cuda by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.libraries.common import assert_on_cuda


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        assert x.is_cuda
        assert_on_cuda(self.parameters())
        loss = nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def loader() -> DataLoader[Any]:
    torch.manual_seed(0)
    data = torch.randn(128, 8)
    return DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=16)


@pytest.mark.parametrize(
    "options",
    [
        {"devices": 1},
        {"accelerator": "auto", "devices": 1},
        {"accelerator": "gpu", "devices": [1]},
        {"accelerator": "cuda", "devices": 1, "precision": "16-mixed"},
        {"accelerator": "gpu", "devices": 1, "precision": "bf16-mixed"},
        {"devices": 1, "gradient_clip_val": 0.5, "accumulate_grad_batches": 2},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_fit(options: dict[str, Any], tmp_path: Path) -> None:
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=4,
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    assert type(trainer.accelerator).__name__ == "CUDAAccelerator"
    model = Regression()
    trainer.fit(model, loader())
    assert sum(model.losses[-4:]) < sum(model.losses[:4]) / 2
    assert trainer.strategy.root_device.type == "cuda"


def test_checkpoint(tmp_path: Path) -> None:
    model = Regression()
    options: dict[str, Any] = {"default_root_dir": tmp_path, "logger": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=1, devices=1, **options)
    trainer.fit(model, loader())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = lightning.Trainer(max_epochs=2, devices=1, **options)
    again.fit(Regression(), loader(), ckpt_path=tmp_path / "x.ckpt", weights_only=False)
    assert again.global_step == 2 * trainer.global_step


def test_fabric() -> None:
    fabric = lightning.Fabric(devices=1, precision="16-mixed")
    fabric.launch()
    assert fabric.device.type == "cuda"
    model = nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in fabric.setup_dataloaders(loader()):
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    assert_on_cuda(model.parameters())
