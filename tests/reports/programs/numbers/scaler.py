import torch


def made(dtype=torch.float32):
    model = torch.nn.Linear(4, 4).cuda().to(dtype)
    return model, torch.optim.SGD(model.parameters(), 1.0), torch.amp.GradScaler("cuda")


def backward(model, scaler):
    x = torch.ones(2, 4, device="cuda", dtype=model.weight.dtype)
    scaler.scale(model(x).sum()).backward()
