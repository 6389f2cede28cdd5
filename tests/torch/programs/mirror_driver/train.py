import torch
from torch import nn


def losses(device):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 10)]
    model = nn.Sequential(*layers).to(device)
    images, labels = torch.rand(16, 1, 8, 8).to(device), torch.arange(16).remainder(10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
