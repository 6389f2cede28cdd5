import torch

assert not torch.cuda.is_available() and "torch_loom" not in torch.cuda.memory_allocated.__module__
assert torch.cuda.device_count() == 0
assert torch.UntypedStorage.__new__ is torch._C.StorageBase.__new__
# A build of PyTorch for CUDA has kernels of its own.
rows = torch._C._dispatch_dump("aten::add.Tensor").splitlines()
assert not [row for row in rows if row.startswith("CUDA: ") and "csrc/torch/core" in row], rows
assert [row for row in rows if row.startswith("PrivateUse1: ") and "csrc/torch/core" in row], rows
