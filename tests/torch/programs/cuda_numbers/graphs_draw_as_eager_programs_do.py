import torch

from tests.torch.programs.cuda_numbers.draws import OPS, offset

device = torch.accelerator.current_accelerator().type
module = torch.get_device_module(device)
# These ask the host about values, which no capture can.
NAMES = [name for name in OPS if not name.startswith(("multinomial", "normal", "poisson", "binomial"))]
for name in NAMES:
    draw = OPS[name]
    draw(device)  # so that results are known
    torch.manual_seed(5)
    eager = [draw(device), draw(device), draw(device)]
    ends = offset(device)
    torch.manual_seed(5)
    graph = module.CUDAGraph() if device == "cuda" else module.Graph()
    with module.graph(graph):
        drawn = draw(device)
    assert offset(device) == 0, name
    for expected in eager:
        graph.replay()
        assert torch.equal(drawn, expected), name
    assert offset(device) == ends, name
