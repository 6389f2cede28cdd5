import json

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to("loom")
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
start, end = (torch.loom.Event(enable_timing=True) for _ in range(2))
side = torch.loom.Stream()
start.record()
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 32, device="loom")).square().mean()
    loss.backward()
    optimizer.step()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        torch.loom._sleep(1000)
        model[0].weight.detach().clone()
    losses.append(loss.detach().to("cpu", non_blocking=True))
    torch.loom.synchronize()
end.record()
torch.loom.synchronize()
print(json.dumps([start.elapsed_time(end), torch.loom.clock(), torch.loom.clock(0), sum(map(float, losses))]))
