import torch


def total(is_waited_for):
    stream, target = torch.cuda.Stream(), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    source = torch.ones(1000).pin_memory()
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    if is_waited_for:
        torch.cuda.current_stream().wait_stream(stream)
    found = target.sum().item()
    torch.cuda.synchronize()
    return found
