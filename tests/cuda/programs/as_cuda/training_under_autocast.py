import torch
from torch import nn

torch.manual_seed(0)
features = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
model = nn.Sequential(*features, nn.Linear(144, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
scaler = torch.amp.GradScaler("cuda")
x, target = torch.randn(16, 1, 8, 8).cuda(), torch.randint(10, (16,)).cuda()
losses = []
for _ in range(15):
    with torch.autocast("cuda", torch.float16):
        output = model(x)
        assert output.dtype == torch.float16
        loss = nn.functional.cross_entropy(output, target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
assert all(parameter.is_cuda for parameter in model.parameters())
