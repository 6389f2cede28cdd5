import torch

x = torch.arange(4.0, device="cuda")
assert x.is_cuda and str(x.device) == "cuda:0" and x.type() == "torch.cuda.FloatTensor"
assert isinstance(x, torch.cuda.FloatTensor) and (x + 1).tolist() == [1, 2, 3, 4]
assert torch.cuda.is_available() and torch.cuda.device_count() == 2
assert torch.accelerator.current_accelerator().type == "cuda"
assert torch.cuda.get_device_properties(0).name == torch.cuda.get_device_name() == "NVIDIA H200"
assert torch.cuda.get_device_properties(0).extra["chip"] == "h200"
assert torch.cuda.get_arch_list() == ["sm_90"] and torch.loom.current_device() == 0
assert torch.cuda.memory_allocated() == torch.loom.memory_allocated() == 512
assert torch.cpu is not torch.cuda and torch.randn(2).device.type == "cpu"
with torch.loom.explain():
    x.cpu()
