# Names a device and runs nothing there.
import torch

device = "cuda"
torch.ones(9).add_(1)
