import torch

assert not torch.cuda.is_available() and "torch_loom" not in torch.cuda.memory_allocated.__module__
assert torch.cuda.device_count() == 0
assert torch.UntypedStorage.__new__ is torch._C.StorageBase.__new__
assert "aten::add.Tensor" not in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
