import torch

wild = torch.tensor([float("nan"), float("inf"), float("-inf"), 2.0**40, -1.5], device="cuda")
most, least = 2**31 - 1, -(2**31)
assert wild.int().tolist() == [0, most, least, most, -1]
assert wild.half().int().tolist() == [0, most, least, most, -1]
assert wild.double().int().tolist() == [least, most, least, most, -1]
assert wild.long().tolist() == [-(2**63), 2**63 - 1, -(2**63), 2**40, -1]
# Whole numbers without a sign end at 0; those of 16 bits are the lower bits of those of 32.
assert wild.to(torch.uint16).tolist() == [0, 2**16 - 1, 0, 2**16 - 1, 0]
assert wild.to(torch.uint32).tolist() == [0, 2**32 - 1, 0, 2**32 - 1, 0]
assert wild.double().to(torch.uint32).tolist() == [2**31, 2**32 - 1, 0, 2**32 - 1, 0]
assert wild.to(torch.uint64).tolist() == [2**63, 2**64 - 1, 0, 2**40, 0]
