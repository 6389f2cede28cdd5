import torch

from tests.reports.programs.graphs.failed import assert_failed


class Product(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8, device="cuda")

    def forward(self, x):
        return torch.prod(self.layer(x), 1)


assert_failed(lambda: torch.cuda.make_graphed_callables(Product(), (torch.randn(8, 8, device="cuda"),)))
assert not torch.cuda.is_current_stream_capturing()
assert Product()(torch.ones(8, 8, device="cuda")).shape == (8,)
