import torch


def peak(**options):
    parameters = [torch.zeros(1 << 18, device="cuda", requires_grad=True) for _ in range(16)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.Adam(parameters, **options)
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    optimizer.step()
    return (torch.cuda.max_memory_allocated() - before) / parameters[0].nbytes


assert peak() == peak(foreach=True) >= 15
assert peak(foreach=False) <= 3
assert peak(fused=True) < 0.1
