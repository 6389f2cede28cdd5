from torch.utils.data import DataLoader

from tests.raising import raises
from tests.reports.programs.processes.dataset import Numbers

raises(
    "RuntimeError",
    "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
    lambda: list(DataLoader(Numbers(), 2, pin_memory=True)),
)
