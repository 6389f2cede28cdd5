import torch

wild = torch.tensor([float("nan"), float("inf"), float("-inf"), 2.0**40, -1.5], device="cuda")
most, least = 2**31 - 1, -(2**31)
assert wild.int().tolist() == [0, most, least, most, -1]
assert wild.half().int().tolist() == [0, most, least, most, -1]
assert wild.double().int().tolist() == [least, most, least, most, -1]
assert wild.long().tolist() == [-(2**63), 2**63 - 1, -(2**63), 2**40, -1]
