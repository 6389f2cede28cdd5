import torch
from torch.backends import cudnn

assert cudnn.is_available() and not cudnn.is_acceptable(torch.ones(1, device="cuda"))
for name in ("benchmark", "deterministic", "allow_tf32", "enabled"):
    for value in (True, False):
        setattr(cudnn, name, value)
        assert getattr(cudnn, name) is value, name
with cudnn.flags(benchmark=True):
    assert cudnn.benchmark
assert not cudnn.benchmark
