import sys

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
size = int(sys.argv[1])
model = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for number in range(1000):
    optimizer.zero_grad()
    x, labels = torch.randn(32, size).to(device), torch.zeros(32).long().to(device)
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    print("step", number)
