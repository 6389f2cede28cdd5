import torch

side, seen = torch.cuda.Stream(device=1), []
x = torch.ones(3, device="cuda:1", requires_grad=True)
with torch.cuda.stream(side):
    y = x * 2
    y.register_hook(lambda gradient: seen.append((torch.cuda.current_device(), torch.cuda.current_stream())))
    z = y.exp()
z.sum().backward()
assert seen == [(1, side)]
