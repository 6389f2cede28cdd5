"""Threads that share a device, and its default stream with it, compute what each would compute alone."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn

NUM_THREADS, NUM_REPETITIONS, NUM_STEPS = 4, 40, 12


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 16),
        nn.GELU(),
        nn.Linear(16, 16),
        nn.ReLU(inplace=True),
        nn.LayerNorm(16),
        nn.Linear(16, 4),
    )


def data(seed: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(seed)
    return [(torch.randn(5, 6), torch.randint(0, 4, (5,))) for _ in range(NUM_STEPS)]


def trained(net: nn.Module, samples: list[tuple[Tensor, Tensor]], device: str) -> list[Tensor]:
    """The losses of a training, and the parameters after it."""
    net = copy.deepcopy(net).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for number, (x, target) in enumerate(samples):
        if number % 4 == 0:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), target.to(device))
        loss.backward()
        losses.append(loss.detach().cpu())
        if number % 4 == 3:
            optimizer.step()
    return [*losses, *(value.detach().cpu() for value in net.parameters())]


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 2])
def test_training_is_that_of_one_thread(num_devices: int) -> None:
    cases = [(model(seed), data(seed)) for seed in range(NUM_THREADS)]
    expected = [trained(net, samples, "cpu") for net, samples in cases]
    wrong: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def work(place: int) -> None:
        try:
            for repetition in range(NUM_REPETITIONS):
                got = trained(*cases[place], f"loom:{place % num_devices}")
                if not all(map(torch.equal, got, expected[place])):
                    wrong.append((place, repetition))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not wrong
