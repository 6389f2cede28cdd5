import ast
import sys

import numpy as np
import torch
from torch.nn import functional

from tests.torch import cuda_random_reference as reference
from tests.torch.programs.cuda_numbers.draws import offset

(cores,) = ast.literal_eval(sys.argv[1])
device = torch.accelerator.current_accelerator().type
SEED = 2**40 + 17


def begin(at):
    state = SEED.to_bytes(8, "little") + at.to_bytes(8, "little")
    torch.get_device_module(device).set_rng_state(torch.tensor(list(state), dtype=torch.uint8))


def numbers(tensor):
    return tensor.cpu().numpy().reshape(-1)


for count in (1, 255, 5000, 9000):  # less than a grid, and more than a round of it
    for at in (0, 12):
        begin(at)
        assert np.array_equal(
            numbers(torch.rand(count, device=device)), reference.rand(count, SEED, at, cores)
        )
        assert offset(device) == at + reference.step_of(count, cores)
        begin(at)
        exact = reference.randn(count, SEED, at, cores)
        ulps = np.abs(numbers(torch.randn(count, device=device)) - exact) / np.spacing(
            np.abs(exact).astype(np.float32)
        )
        assert ulps.max() <= 1.5, ulps.max()

# Elements in the order in which a tensor lies, whatever its strides are.
begin(4)
turned = torch.empty(40, 30, device=device).t()
turned.uniform_()
assert np.array_equal(numbers(turned.t()), reference.rand(1200, SEED, 4, cores))
begin(4)
every_second = torch.zeros(30, 40, device=device)
every_second[:, ::2].uniform_()
assert np.array_equal(numbers(every_second[:, ::2]), reference.rand(600, SEED, 4, cores))

wide = reference.wide_words(3000, SEED, 8, cores)
begin(8)
doubles = numbers(torch.rand(3000, device=device, dtype=torch.double))
assert np.array_equal(doubles, np.array([reference.uniform_double(*pair) for pair in wide]) % 1)
begin(8)
large = numbers(torch.randint(-7, 2**40, (3000,), device=device))
assert large.tolist() == [((high << 32) | low) % (2**40 + 7) - 7 for high, low in wide]
begin(8)
small = numbers(torch.randint(-7, 1000, (3000,), device=device))
words = reference.words(3000, SEED, 8, cores)
assert small.tolist() == [word % 1007 - 7 for word in words]
begin(8)
kept = numbers(torch.empty(3000, device=device).bernoulli_(0.3))
assert kept.tolist() == [float(reference.uniform(word) < np.float32(0.3)) for word in words]

# One thread for four neighbours, however many there are.
begin(8)
chosen = numbers(torch.bernoulli(torch.full((3001,), 0.3, device=device)))
fours = [reference.philox(SEED, 2, thread) for thread in range(751)]
assert chosen.tolist() == [
    float(reference.uniform(fours[i // 4][i % 4]) <= np.float32(0.3)) for i in range(3001)
]
assert offset(device) == 8 + 12

for dtype, width in ((torch.half, 8), (torch.float, 4), (torch.double, 2)):
    for count, own in ((4000, width), (4001, 1)):
        begin(4)
        dropped = numbers(functional.dropout(torch.ones(count, device=device, dtype=dtype), 0.3))
        assert np.array_equal(dropped != 0, reference.kept_by_dropout(count, 0.3, SEED, 4, cores, own))
        assert offset(device) == 4 + reference.step_of(count, cores)

for count in (2, 300, 3000):
    begin(4)
    assert numbers(torch.randperm(count, device=device)).tolist() == reference.permutation(
        count, SEED, 4, cores
    )
