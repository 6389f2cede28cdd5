import torch


def draw():
    return torch.rand(1, device="cuda").item()


state = torch.get_rng_state()
first = draw()
torch.set_rng_state(state)
assert draw() != first
state = torch.cuda.get_rng_state()
assert (state.numel(), state.device.type, state.dtype) == (16, "cpu", torch.uint8)
first = draw()
torch.cuda.set_rng_state(state)
assert draw() == first
