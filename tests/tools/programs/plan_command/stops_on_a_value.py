import torch
from torch import nn

model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    loss = model(torch.randn(8, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "model.pt")
    if loss.item() < 0.1:
        break
