import torch
from torch._inductor import config

config.cpp_cache_precompile_headers = False  # what they take is not won back by so few kernels
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).cuda()
x = torch.randn(3, 4, device="cuda", requires_grad=True)
expected = model(x)
compiled = torch.compile(model)
compiled(x)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    found = compiled(x)
assert any("cpp_fused" in row.key for row in profile.key_averages())
torch.testing.assert_close(found, expected)
found.sum().backward()
assert x.grad.is_cuda
