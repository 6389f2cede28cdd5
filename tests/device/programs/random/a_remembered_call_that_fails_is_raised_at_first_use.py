import torch

from torch_loom.device._core import first_use


def broken():
    raise KeyError("planted")


first_use._lazy_call(broken)
torch.loom.manual_seed(8)
try:
    torch.ones(2, device="loom")
except RuntimeError as error:
    assert type(error).__name__ == "DeferredCallError" and "planted" in str(error), repr(error)
    assert isinstance(error.__cause__, KeyError)
else:
    raise AssertionError
# Told once; what was remembered besides has been done.
assert torch.ones(2, device="loom").tolist() == [1, 1] and torch.loom.initial_seed() == 8
