import torch
import torch.nn.functional as F

device = torch.device("cuda:1")
w = torch.randn(32, 32, device=device, requires_grad=True)
x = torch.rand(4, 32, device=device, requires_grad=True)


def loss_of():
    return F.linear(F.softplus(F.linear(x, w)), w).sum()


def captured_with(current):
    "The loss and the gradient of a replay, captured under a current device."
    with torch.cuda.device(current):
        side = torch.cuda.Stream(device=device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                loss_of().backward()
        torch.cuda.current_stream(device).wait_stream(side)
        w.grad = x.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = loss_of()
            loss.backward()
        graph.replay()
        torch.cuda.synchronize(device)
        return loss, x.grad
