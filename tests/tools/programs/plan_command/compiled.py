import torch

model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters())
compiled = torch.compile(model)
loss = compiled(torch.randn(8, 256, device="cuda")).square().mean()
loss.backward()
print(loss.item())
optimizer.step()
