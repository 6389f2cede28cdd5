import sys

import torch
from torch import nn

import torch_loom

net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
torch_loom.compile(nn.Linear(2, 2), (torch.ones(1, 2),), cache=False)
print("ready", flush=True)
sys.stdin.readline()
for width in range(1, 9):
    run = torch_loom.compile(net, (torch.ones(width, 8),), chip="wormhole_b0")
    x = torch.rand(width, 8)
    assert torch.equal(run(x).cpu(), net.to("cpu")(x))
    assert "graphs" in run.netlist()
