import torch

from tests.reports.programs.random.offset import advanced

few, many = torch.ones(256, 1000, device="cuda"), torch.ones(1100, 1000, device="cuda")
assert advanced(lambda: torch.multinomial(few, 1)) == 4
assert advanced(lambda: torch.multinomial(many, 1)) == 8
