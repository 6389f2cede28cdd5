import torch

from tests.reports.programs.random.offset import advanced

wave = 132 * 2048 * 4  # numbers that all threads of the card draw at once
assert advanced(lambda: torch.rand(10, device="cuda")) == 4
assert advanced(lambda: torch.rand(wave, device="cuda")) == 4
assert advanced(lambda: torch.rand(wave + 1, device="cuda")) == 8
