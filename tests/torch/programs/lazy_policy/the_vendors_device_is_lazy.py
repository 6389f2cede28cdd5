import torch

x = torch.zeros(1024, device="rbln")
print(torch.rbln.memory_allocated(), torch.rbln.memory_stats()["lazy.host_bytes"])
x + 1
print(torch.rbln.memory_allocated())
