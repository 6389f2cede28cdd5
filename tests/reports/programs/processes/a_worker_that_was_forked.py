import torch
from torch.utils.data import DataLoader

from tests.raising import raises
from tests.reports.programs.processes.dataset import Numbers

torch.ones(1, device="cuda")
raises(
    "RuntimeError",
    "Caught RuntimeError in DataLoader worker process 0.",
    lambda: list(DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="fork")),
)
