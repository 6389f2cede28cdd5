"""Lightning on devices of the name loom."""

from __future__ import annotations

from pathlib import Path

import lightning
import pytest
import torch

pytestmark = pytest.mark.slow  # its import takes some seconds


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.dtypes: set[torch.dtype] = set()

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        result = self.inner(batch)
        self.dtypes.add(result.dtype)
        return result.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)],
)
@pytest.mark.parametrize(("devices", "index"), [(1, 0), ([1], 1), ("1", 0)])
def test_training(tmp_path: Path, precision: str, dtype: torch.dtype, devices: object, index: int) -> None:
    trainer = lightning.Trainer(
        accelerator="loom",
        devices=devices,
        precision=precision,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )
    net = Net()
    trainer.fit(net, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    assert trainer.strategy.root_device == torch.device("loom", index)
    assert net.dtypes == {dtype}


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"devices must be of 0 to \d+, but got \[7\]"):
        lightning.Trainer(accelerator="loom", devices=[7], logger=False)
