import numpy as np
import torch

from tests.torch import cuda_random_reference as reference

COUNT = 1003


def seed_of_next():
    "The seed that a compiled call draws first."
    state = torch.cuda.get_rng_state()
    seed = torch.randint(-(2**63), 2**63 - 1, [1], device="cuda").item()
    torch.cuda.set_rng_state(state)
    return seed % 2**64


@torch.compile
def uniform(x):
    return torch.rand_like(x)


@torch.compile
def normal(x):
    return torch.randn_like(x)


@torch.compile
def dropped(x):
    return torch.nn.functional.dropout(x, 0.3)


@torch.compile
def whole(x):
    return torch.randint(-5, 2**40, x.shape, device=x.device)


x = torch.ones(COUNT, device="cuda")
for function in (uniform, normal, dropped, whole):
    function(x)
torch.manual_seed(4)
seed = seed_of_next()
assert np.array_equal(uniform(x).cpu().numpy(), reference.triton_rand(COUNT, seed))
seed = seed_of_next()
found = normal(x).cpu().numpy()
assert np.abs(found - reference.triton_randn(COUNT, seed)).max() < 2e-6
seed = seed_of_next()
kept = dropped(x).cpu().numpy() != 0
assert np.array_equal(kept, reference.triton_rand(COUNT, seed) > np.float32(0.3))
seed = seed_of_next()
assert whole(x).tolist() == reference.triton_randint(COUNT, seed, -5, 2**40)
