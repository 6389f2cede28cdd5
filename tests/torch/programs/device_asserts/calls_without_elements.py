"""No kernel runs on tensors without elements: what is refused there is no assert, and the device goes on."""

import torch

from tests.raising import raises

for count in (0, 2):
    chances = torch.ones(count, dtype=torch.int64, device="cuda")
    raises("RuntimeError", "probabilities tensor to have floating type", lambda p=chances: torch.bernoulli(p))
assert torch.ones(2, device="cuda").sum().item() == 2
