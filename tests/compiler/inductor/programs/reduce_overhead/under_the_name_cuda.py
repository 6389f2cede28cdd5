import torch
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

config.compile_threads, config.cpp_cache_precompile_headers = 1, False
weight = torch.randn(8, 8, device="cuda", requires_grad=True)
step = torch.compile(lambda x: (x @ weight).relu().sum(), mode="reduce-overhead")
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    weight.grad = None
    x = torch.randn(4, 8, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        loss = step(x)
        loss.backward()
    twin = weight.detach().cpu().requires_grad_()
    expected = (x.cpu() @ twin).relu().sum()
    expected.backward()
    torch.testing.assert_close(loss.cpu(), expected)
    torch.testing.assert_close(weight.grad.cpu(), twin.grad)
print([event.name for event in found.events()].count("cudaGraphLaunch"))
