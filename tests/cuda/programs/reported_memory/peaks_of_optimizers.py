import torch

from tests.cuda.programs.reported_memory.prepare import MIB


def peak(**options):
    parameters = [torch.zeros(MIB, device="cuda", requires_grad=True) for _ in range(16)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.Adam(parameters, **options)
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    optimizer.step()
    return (torch.cuda.max_memory_allocated() - base) / (4 * MIB)


lists, loop, fused = peak(foreach=True), peak(foreach=False), peak(fused=True)
assert 15 <= lists <= 33 and loop <= 3 and fused < 0.1, (lists, loop, fused)
