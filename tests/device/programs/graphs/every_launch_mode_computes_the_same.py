import torch

torch.manual_seed(0)
x = torch.randn(32, 32, device="loom")
main, side = torch.loom.Stream(), torch.loom.Stream()
graph = torch.loom.LoomGraph()
with torch.loom.graph(graph, stream=main):
    y = x @ x
    side.wait_stream(main)
    with torch.loom.stream(side):
        left = y.relu()
    right = y.tanh() + torch.rand_like(y)
    main.wait_stream(side)
    z = left + right
torch.manual_seed(1)
with torch.loom.stream(side):
    for _ in range(3):
        graph.replay()
torch.loom.synchronize()
print(z.double().sum().item())
