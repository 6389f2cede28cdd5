import torch

from tests.reports.programs.graphs.failed import assert_failed


def take_first(x):
    return torch.gather(x, 0, torch.tensor([0], device=x.device))


assert_failed(lambda: torch.cuda.make_graphed_callables(take_first, (torch.randn(1, device="cuda"),)))
