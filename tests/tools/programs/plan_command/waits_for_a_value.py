# A loop that goes on until a value of the device is 1, which it never is.
import torch

count = torch.zeros((), device="cuda")
while count.item() < 1:
    count += 1
