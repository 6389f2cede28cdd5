"""Every op that draws numbers, by name; what programs here share."""

import torch
from torch.nn import functional

OPS = {
    "rand": lambda d: torch.rand(3000, device=d),
    "rand half": lambda d: torch.rand(3001, device=d, dtype=torch.half),
    "rand double": lambda d: torch.rand(3001, device=d, dtype=torch.double),
    "rand complex": lambda d: torch.rand(3001, device=d, dtype=torch.complex64),
    "rand strided": lambda d: torch.empty(30, 100, device=d)[:, ::2].uniform_(),
    "randn": lambda d: torch.randn(3001, device=d),
    "randn double": lambda d: torch.randn(3001, device=d, dtype=torch.double),
    "randn complex": lambda d: torch.randn(3001, device=d, dtype=torch.complex64),
    "randint": lambda d: torch.randint(1000, (3001,), device=d),
    "randint wide": lambda d: torch.randint(2**40, (3001,), device=d),
    "random_": lambda d: torch.empty(3001, device=d, dtype=torch.int16).random_(),
    "random_ double": lambda d: torch.empty(3001, device=d, dtype=torch.double).random_(),
    "randperm": lambda d: torch.randperm(3001, device=d),
    "normal": lambda d: torch.normal(torch.zeros(3001, device=d), torch.ones(3001, device=d)),
    "exponential_": lambda d: torch.empty(3001, device=d).exponential_(2.0),
    "geometric_": lambda d: torch.empty(3001, device=d).geometric_(0.3),
    "cauchy_": lambda d: torch.empty(3001, device=d).cauchy_(),
    "log_normal_": lambda d: torch.empty(3001, device=d).log_normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.full((3001,), 0.3, device=d)),
    "bernoulli_": lambda d: torch.empty(3001, device=d).bernoulli_(0.3),
    "dropout": lambda d: functional.dropout(torch.ones(3000, device=d)),
    "dropout odd": lambda d: functional.dropout(torch.ones(3001, device=d)),
    "dropout strided": lambda d: functional.dropout(torch.ones(60, 100, device=d)[:, ::2]),
    "alpha_dropout": lambda d: functional.alpha_dropout(torch.ones(3001, device=d), training=True),
    "feature_dropout": lambda d: functional.dropout2d(torch.ones(50, 60, 2, 2, device=d)),
    "rrelu": lambda d: functional.rrelu(-torch.ones(3001, device=d), training=True),
    "poisson": lambda d: torch.poisson(torch.full((3001,), 7.0, device=d)),
    "binomial": lambda d: torch.binomial(torch.full((3001,), 9.0, device=d), torch.tensor(0.3, device=d)),
    "gamma": lambda d: torch._standard_gamma(torch.full((3001,), 2.0, device=d)),
    "dirichlet": lambda d: torch._sample_dirichlet(torch.ones(1000, 3, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(40, 100, device=d), 5),
    "multinomial once": lambda d: torch.multinomial(torch.ones(40, 100, device=d), 1),
    "multinomial again": lambda d: torch.multinomial(torch.ones(100, device=d), 300, replacement=True),
    "fractional pooling": lambda d: functional.fractional_max_pool2d(
        torch.arange(4096.0, device=d).view(16, 4, 8, 8), 2, output_size=5
    ),
}


def offset(device):
    """The offset of the device's generator."""
    state = torch.get_device_module(device).get_rng_state()
    return int.from_bytes(bytes(state[8:].tolist()), "little")
