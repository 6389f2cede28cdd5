import torch

x = torch.arange(6, dtype=torch.float32, device="loom").reshape(2, 3)
layer = torch.nn.Linear(3, 4).to("loom")
layer(x).sum().backward()
assert layer.weight.grad.cpu().tolist() == [[3.0, 5.0, 7.0]] * 4
start, end = (torch.Event("loom", enable_timing=True) for _ in range(2))
with torch.Stream("loom") as stream:
    start.record()
    total = (x @ x.t()).sum().item()
    end.record()
stream.synchronize()
assert total == 83.0 and start.elapsed_time(end) >= 0
assert torch.loom.memory_allocated() > 0
