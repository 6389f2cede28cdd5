import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, supported_activities

assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
x = torch.randn(32, 32, device="cuda")
for activities in (None, [ProfilerActivity.CUDA], [ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    with profile(activities=activities) as prof:
        (x @ x).cpu()
        x.zero_()
    rows = [event.name for event in prof.events() if event.device_type == DeviceType.CUDA]
    assert rows == ["cuda::gemm<mm>", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)"], rows
    host = [event.name for event in prof.events() if event.device_type == DeviceType.CPU]
    assert {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"} <= set(host), host
assert "CUDA time total" in prof.key_averages().table(sort_by="cuda_time_total")
[product] = [event for event in prof.key_averages() if event.key == "aten::mm"]
assert product.device_time_total > 0
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x @ x
assert {event.device_type for event in prof.events()} == {DeviceType.CPU}
