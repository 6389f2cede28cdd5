"""Ops whose results' sizes depend on values, where nothing is computed: the largest they can have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def dry_run() -> Iterator[None]:
    with torch.loom.dry_run(devices=1):
        yield


def made(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes, device="loom")


CASES: dict[str, tuple[Callable[[], object], object]] = {
    "nonzero": (lambda: made(3, 4).nonzero().shape, (12, 2)),
    "nonzero as a tuple": (lambda: [each.shape for each in made(3, 4).nonzero(as_tuple=True)], [(12,)] * 2),
    "nonzero, out": (
        lambda: torch.nonzero(made(5), out=torch.empty(0, dtype=torch.int64, device="loom")).shape,
        (5, 1),
    ),
    "where": (lambda: [each.shape for each in torch.where(made(2, 3) > 0)], [(6,)] * 2),
    "argwhere": (lambda: torch.argwhere(made(7)).shape, (7, 1)),
    "nonzero of a scalar": (lambda: torch.ones((), device="loom").nonzero().shape, (1, 0)),
    "mask": (lambda: made(3, 4)[made(3, 4) > 0].shape, (12,)),
    "mask of rows": (lambda: made(3, 4)[made(3) > 0].shape, (3, 4)),
    "mask and position": (lambda: made(3, 4, 5)[made(3) > 0, 0].shape, (3, 5)),
    "masked_select": (lambda: made(3, 1).masked_select(made(1, 4) > 0).shape, (12,)),
    "unique": (lambda: torch.unique(made(3, 4)).shape, (12,)),
    "unique with all": (
        lambda: [each.shape for each in torch.unique(made(3, 4), return_inverse=True, return_counts=True)],
        [(12,), (3, 4), (12,)],
    ),
    "unique along": (
        lambda: [each.shape for each in torch.unique(made(3, 4), dim=1, return_inverse=True)],
        [(3, 4), (4,)],
    ),
    "unique_consecutive": (lambda: torch.unique_consecutive(made(9)).shape, (9,)),
    "repeat_interleave": (
        lambda: made(5, 2).repeat_interleave(torch.ones(5, dtype=torch.int64, device="loom"), dim=0).shape,
        (5, 2),
    ),
    "repeat_interleave of a said size": (
        lambda: (
            made(5).repeat_interleave(torch.ones(5, dtype=torch.int64, device="loom"), output_size=8).shape
        ),
        (8,),
    ),
    "bincount": (
        lambda: torch.bincount(torch.ones(9, dtype=torch.int64, device="loom"), minlength=4).shape,
        (4,),
    ),
}


@pytest.mark.filterwarnings("ignore:.*computes nothing")
@pytest.mark.parametrize("case", CASES)
def test_sizes_are_the_largest(case: str) -> None:
    found, expected = CASES[case]
    assert found() == expected


@pytest.mark.filterwarnings("ignore:.*computes nothing")
def test_writing_through_a_mask() -> None:
    x = made(3, 4)
    address = x.data_ptr()
    x[x > 0] = made(5)  # as many values as the program knows that there are
    x[made(3) > 0] += 1
    x[x > 0] = 2.0
    assert (x.shape, x.data_ptr()) == ((3, 4), address)
    assert torch.index_put(x, (x > 0,), made(1)).shape == (3, 4)


@pytest.mark.filterwarnings("ignore:.*computes nothing")
def test_gradients_pass_through_masks() -> None:
    x = made(6, 2).requires_grad_()
    (x[x[:, 0] > 0].square().sum() + x.masked_select(x > 0).sum()).backward()
    assert x.grad is not None
    assert x.grad.shape == (6, 2)


def test_each_line_warns_once() -> None:
    x = made(8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            x.nonzero()
        x.nonzero()
    texts = [str(each.message) for each in caught]
    assert len(texts) == 2, texts
    assert all("test_null_sizes.py:" in text and "nonzero" in text for text in texts)


class Experts(nn.Module):
    """A layer that routes each token to its two best experts, as mixtures of experts are written."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


@pytest.mark.filterwarnings("ignore:.*computes nothing")
def test_a_mixture_of_experts_trains() -> None:
    model = Experts(32, 4).to("loom")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(made(16, 32)).sum().backward()
    optimizer.step()
    assert all(each.grad is not None for each in model.experts.parameters())
