import numpy as np
import torch
from scipy import stats
from torch.nn import functional

device = torch.accelerator.current_accelerator().type
COUNT, LEAST = 100_000, 1e-4
torch.manual_seed(11)


def fits(name, drawn, distribution):
    found = stats.kstest(drawn.double().cpu().numpy().reshape(-1), distribution.cdf).pvalue
    assert found > LEAST, (name, found)


def counts(name, drawn, distribution, values):
    drawn = drawn.double().cpu().numpy().reshape(-1)
    expected = np.array([distribution.pmf(value) for value in values]) * len(drawn)
    observed = np.array([(drawn == value).sum() for value in values])
    often = expected > 5
    rest = [max(len(drawn) - expected[often].sum(), 1e-9)], [len(drawn) - observed[often].sum()]
    expected, observed = np.append(expected[often], rest[0]), np.append(observed[often], rest[1])
    if expected[-1] < 1:
        expected, observed = expected[:-1], observed[:-1]
    found = stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
    assert found > LEAST, (name, found)


def empty(dtype=torch.float):
    return torch.empty(COUNT, device=device, dtype=dtype)


for dtype in (torch.float, torch.double):
    fits("uniform", empty(dtype).uniform_(-1, 3), stats.uniform(-1, 4))
    fits("normal", empty(dtype).normal_(1, 2), stats.norm(1, 2))
    fits("exponential", empty(dtype).exponential_(2.0), stats.expon(scale=0.5))
    fits("cauchy", empty(dtype).cauchy_(1, 2), stats.cauchy(1, 2))
    fits("log normal", empty(dtype).log_normal_(1, 0.5), stats.lognorm(0.5, scale=np.e))
    counts("geometric", empty(dtype).geometric_(0.3), stats.geom(0.3), range(1, 40))
    for alpha in (0.3, 1.0, 7.0):
        fits("gamma", torch._standard_gamma(empty(dtype).fill_(alpha)), stats.gamma(alpha))
    for rate in (0.5, 10.0, 100.0, 5000.0):
        around = range(max(0, int(rate - 6 * rate**0.5)), int(rate + 6 * rate**0.5 + 9))
        counts("poisson", torch.poisson(empty(dtype).fill_(rate)), stats.poisson(rate), around)
    for number, share in ((5, 0.3), (100, 0.4), (100, 0.01)):
        drawn = torch.binomial(empty(dtype).fill_(number), empty(dtype).fill_(share))
        counts("binomial", drawn, stats.binom(number, share), range(number + 1))
    fits(
        "dirichlet",
        torch._sample_dirichlet(torch.ones(COUNT, 3, device=device, dtype=dtype))[:, 0],
        stats.beta(1, 2),
    )
    fits(
        "rrelu",
        -functional.rrelu(-torch.ones_like(empty(dtype)), 0.1, 0.3, training=True),
        stats.uniform(0.1, 0.2),
    )
fits("half", empty(torch.half).uniform_() + torch.rand(COUNT, device=device) * 2**-11, stats.uniform())
counts("randint", torch.randint(-3, 20, (COUNT,), device=device), stats.randint(-3, 20), range(-3, 20))
counts("random_", empty(torch.uint8).random_(), stats.randint(0, 256), range(256))
counts("bernoulli", torch.bernoulli(empty().fill_(0.3)), stats.bernoulli(0.3), range(2))
counts("bernoulli_", empty().bernoulli_(0.3), stats.bernoulli(0.3), range(2))
counts("dropout", functional.dropout(empty().fill_(1), 0.2).bool(), stats.bernoulli(0.8), range(2))
counts(
    "first of randperm",
    torch.cat([torch.randperm(5, device=device)[:1] for _ in range(2000)]),
    stats.randint(0, 5),
    range(5),
)
weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
tenths = stats.rv_discrete(values=(range(4), [0.1, 0.2, 0.3, 0.4]))
counts("multinomial", torch.multinomial(weights, COUNT, replacement=True), tenths, range(4))
counts("multinomial", torch.multinomial(weights.expand(COUNT // 4, 4), 1), tenths, range(4))
counts("multinomial", torch.multinomial(weights.repeat(COUNT // 4, 1), 2)[:, 0], tenths, range(4))
