import torch

from tests.reports.programs.asserts.broken import asserts, embedding, out

asserts(lambda: out.sum().item())
for body in (
    lambda: torch.zeros(1).cuda(),
    lambda: torch.rand(2, device="cuda"),
    lambda: embedding.weight.cpu(),
    lambda: repr(out),
    lambda: out.sum().backward(),
    torch.cuda.synchronize,
):
    asserts(body)
assert torch.cuda.memory_allocated() > 0 and torch.cuda.get_device_name()
assert (torch.ones(3) * 2).sum() == 6
