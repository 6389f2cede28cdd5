import torch

from tests.reports.programs.processes.child import REFUSED, child_says

assert torch.cuda.is_available() and REFUSED in child_says()
