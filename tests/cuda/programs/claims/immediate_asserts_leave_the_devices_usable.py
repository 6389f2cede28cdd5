import torch

x, index = torch.ones(3, device="cuda"), torch.tensor([7], device="cuda")
try:
    x[index]
except (IndexError, RuntimeError) as error:
    assert "out of bounds" in str(error), error
else:
    raise AssertionError("no error")
assert (x + 1).tolist() == [2, 2, 2]
