"""Stop inside a module and look at what it computes, as with any eager PyTorch program.

    TORCH_LOOM_DEVICE_NAME=rbln python examples/rbln/breakpoint_in_module.py

At the prompt of pdb, try `p hidden`, `p hidden.device`, `p hidden.max().item()`, `hidden.zero_()`, and `c`.
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A linear layer and a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        breakpoint()
        return torch.relu(hidden)


torch.manual_seed(0)
model = Block().half().to("rbln")
x = torch.ones(1, 4, dtype=torch.float16, device="rbln")
with torch.no_grad():
    print("result:", model(x))
