import torch

torch.manual_seed(3)
torch.loom.manual_seed_all(4)
torch.loom.manual_seed(5)
state = torch.zeros(16, dtype=torch.uint8)
state[0] = 6
torch.loom.set_rng_state(state, "loom:1")
state[0] = 7
assert not torch.loom.is_initialized()
first = torch.rand(3, device="loom")
assert [g.initial_seed() for g in torch.loom.default_generators] == [5, 6]
torch.loom.manual_seed(5)
assert first.tolist() == torch.rand(3, device="loom").tolist()
