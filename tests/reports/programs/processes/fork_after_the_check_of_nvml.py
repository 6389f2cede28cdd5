import torch

from tests.reports.programs.processes.child import child_says

assert torch.cuda.is_available() and child_says() == "2.0"
