"""`Trainer(accelerator="loom")` takes devices as Lightning takes CUDA's, and their precisions."""

import sys
import tempfile

import lightning
import torch
from torch import nn

from tests.raising import raises

precision, dtype = sys.argv[1].strip("'").split()


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.dtypes: set[str] = set()

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        result = self.inner(batch)
        self.dtypes.add(str(result.dtype))
        return result.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


for devices, index in ((1, 0), ([1], 1), ("1", 0)):
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="loom",
            devices=devices,
            precision=precision,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=folder,
        )
        net = Net()
        trainer.fit(net, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))
    assert trainer.strategy.root_device == torch.device("loom", index)
    assert net.dtypes == {f"torch.{dtype}"}

raises("ValueError", "but got [7]", lambda: lightning.Trainer(accelerator="loom", devices=[7], logger=False))
