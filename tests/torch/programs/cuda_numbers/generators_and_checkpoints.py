import torch
from torch.utils.checkpoint import checkpoint

device = torch.accelerator.current_accelerator().type
generator = torch.Generator(device).manual_seed(3)
other = torch.Generator(device).manual_seed(3)
torch.manual_seed(3)
default = torch.rand(9, device=device)
assert torch.equal(torch.rand(9, device=device, generator=generator), default)
state = generator.get_state()
assert state.tolist() == [3] + [0] * 7 + [4] + [0] * 7
after = torch.rand(9, device=device, generator=generator)
other.set_state(state)
assert torch.equal(torch.rand(9, device=device, generator=other), after)
clone = generator.clone_state() if hasattr(generator, "clone_state") else generator
assert torch.equal(
    torch.rand(9, device=device, generator=clone), torch.rand(9, device=device, generator=other)
)

with torch.random.fork_rng(devices=[0], device_type=device):
    inside = torch.rand(9, device=device)
assert torch.equal(torch.rand(9, device=device), inside)

# The mask of the second forward pass is that of the first.
x = torch.ones(100, device=device, requires_grad=True)
kept = checkpoint(torch.nn.functional.dropout, x, use_reentrant=False, preserve_rng_state=True)
torch.rand(50, device=device)
kept.sum().backward()
assert torch.equal(x.grad, kept.detach())
