"""Ops whose results' sizes depend on values, where nothing is computed: the largest they can have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "null_sizes"


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
    "sums of exponentials": (lambda: made(3, 4).logcumsumexp(1).shape, (3, 4)),
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
    "sparse": (
        lambda: [made(3, 4).to_sparse()._nnz(), made(3, 4, 2).to_sparse(1)._values().shape],
        [12, (3, 4, 2)],
    ),
    "compressed": (
        lambda: [
            (x.crow_indices() if x.layout == torch.sparse_csr else x.ccol_indices()).shape + x.values().shape
            for x in (made(3, 4).to_sparse_csr(), made(3, 4).to_sparse_csc())
        ],
        [(4, 12), (5, 12)],
    ),
    "least squares": (
        lambda: [each.shape for each in torch.linalg.lstsq(made(2, 5, 3), made(2, 5, 4))],
        [(2, 3, 4), (0,), (2,), (0,)],
    ),
    "least squares of a vector": (
        lambda: [each.shape for each in torch.linalg.lstsq(made(5, 3), made(5), driver="gelsd")],
        [(3,), (), (), (3,)],
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


def written(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[place] = 1.0
    return x


WRONG: dict[str, Callable[[str], object]] = {
    "mask": lambda d: torch.ones(3, 4, device=d)[torch.ones(5, device=d) > 0],
    "mask of rows and columns": lambda d: torch.ones(3, 4, device=d)[torch.ones(3, 5, device=d) > 0],
    "mask behind a position": lambda d: torch.ones(3, 4, device=d)[0, torch.ones(3, device=d) > 0],
    "mask of too many dimensions": lambda d: torch.ones(3, device=d)[torch.ones(3, 4, device=d) > 0],
    "positions of floats": lambda d: torch.ones(3, device=d)[torch.zeros(2, device=d)],
    "write": lambda d: written(torch.ones(3, 4, device=d), torch.ones(5, device=d) > 0),
    "write of another dtype": lambda d: torch.ones(3, device=d).index_put(
        (torch.ones(3, device=d) > 0,), torch.ones(3, dtype=torch.int64, device=d)
    ),
    "masked_select of numbers": lambda d: torch.ones(3, device=d).masked_select(torch.ones(3, device=d)),
    "masked_select of other sizes": lambda d: torch.ones(3, 4, device=d).masked_select(
        torch.ones(5, device=d) > 0
    ),
    "bincount of floats": lambda d: torch.bincount(torch.ones(3, device=d)),
    "bincount of a matrix": lambda d: torch.bincount(torch.ones(3, 3, device=d, dtype=torch.int64)),
    "bincount with other weights": lambda d: torch.bincount(
        torch.ones(3, device=d, dtype=torch.int64), torch.ones(4, device=d)
    ),
    "bincount of less than nothing": lambda d: torch.bincount(
        torch.ones(3, device=d, dtype=torch.int64), minlength=-1
    ),
    "repeat_interleave by floats": lambda d: torch.repeat_interleave(torch.ones(3, device=d)),
    "repeat_interleave by a matrix": lambda d: torch.repeat_interleave(
        torch.ones(3, 3, device=d, dtype=torch.int64)
    ),
    "unique of complex numbers": lambda d: torch.unique(torch.ones(3, device=d, dtype=torch.complex64)),
    "least squares of other sizes": lambda d: torch.linalg.lstsq(
        torch.ones(4, 3, device=d), torch.ones(5, 2, device=d)
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_are_checked_as_the_engine_checks_them(case: str) -> None:
    with pytest.raises(Exception) as there:  # noqa: PT011 - whatever the CPU raises
        WRONG[case]("cpu")
    with pytest.raises(there.type) as here:
        WRONG[case]("loom")
    assert str(here.value).splitlines()[0] == str(there.value).splitlines()[0]


CHECKS: dict[str, Callable[[torch.Tensor], bool]] = {
    "all": lambda x: bool(x.all()),
    "all finite": lambda x: bool(torch.isfinite(x).all()),
    "equal": lambda x: torch.equal(x, x * 1),
    "allclose": lambda x: torch.allclose(x, x * 1),
}


@pytest.mark.filterwarnings("ignore:.*computes nothing")
@pytest.mark.parametrize("case", CHECKS)
def test_checks_are_supposed_to_pass(case: str) -> None:
    assert CHECKS[case](made(3, 4)) is True


@pytest.mark.filterwarnings("ignore:.*computes nothing")
def test_what_is_no_check_or_was_changed_since_reads_as_zero() -> None:
    assert not torch.equal(made(3), made(4))
    passed = made(3).all()
    assert passed
    other = made(3).any()
    assert not other
    passed.zero_()
    assert not passed


def test_checks_pass_under_the_driver_null_too(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "checks_pass_under_the_driver_null_too.py", {"TORCH_LOOM_DRIVER": "null"})


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
    assert all("nonzero" in text for text in texts)
    assert {each.filename for each in caught} == {__file__}
    assert caught[1].lineno == caught[0].lineno + 1


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
