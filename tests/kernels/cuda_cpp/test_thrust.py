"""Programs that use thrust, against the same in torch."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from torch_loom import _C
from torch_loom.kernels.cuda_cpp import nvcc

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.long
N = 500


def library_of(name: str, folder: Path, *options: str) -> ctypes.CDLL:
    """Compile a program as a build does it, with further options of nvcc."""
    output = folder / f"{name}.so"
    source = str(PROGRAMS / f"{name}.cu")
    words = ["-shared", "-Xcompiler", "-fPIC", "-O1", *options, source, _C.__file__, "-o", str(output)]
    assert nvcc.main(words) == 0
    return ctypes.CDLL(str(output))


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def runs(keys: torch.Tensor) -> list[torch.Tensor]:
    """The places of each run of equal keys."""
    lengths = torch.unique_consecutive(keys, return_counts=True)[1]
    return list(torch.arange(len(keys)).split(lengths.tolist()))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library_of("thrust", tmp_path_factory.mktemp("thrust"))


@pytest.fixture
def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.randint(-99, 99, (2, N), dtype=torch.int32)
    return x, y, torch.randint(0, 3, (N,), dtype=torch.int32)


def test_algorithms_on_pointers_and_a_stream(
    program: ctypes.CDLL, given: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    x, y, keys = given
    out = torch.zeros(6, N, dtype=torch.int32, device="loom")
    own, other, own_keys = x.to("loom"), y.to("loom"), keys.to("loom")
    stream = torch.Stream("loom")
    torch.accelerator.synchronize()
    program.on_pointers(
        pointer(own),
        pointer(other),
        pointer(own_keys),
        N,
        pointer(out),
        ctypes.c_void_p(stream.native_handle),
    )
    stream.synchronize()
    order = torch.sort(x, stable=True)
    by_key = torch.cat([x[run].cumsum(0) for run in runs(keys)])
    expected = [
        order.values,
        2 * x + y,
        x.cumsum(0),
        x.flip(0).cumsum(0).flip(0),
        by_key,
        x[order.indices],
    ]
    for row, wanted in zip(out.cpu(), expected, strict=True):
        assert torch.equal(row, wanted.int())


def test_algorithms_that_return_numbers(
    program: ctypes.CDLL, given: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    x, y, _ = given
    numbers = (ctypes.c_long * 8)()
    own, other = x.to("loom"), y.to("loom")
    torch.accelerator.synchronize()
    program.numbers(pointer(own), pointer(other), N, numbers)
    x, y = x.long(), y.long()
    least = int((x == x.min()).nonzero()[0])
    expected = [x.sum(), x.max(), (x % 2 != 0).sum(), least, (x * y).sum(), (x * x).sum(), 1, (x < 50).sum()]
    assert list(numbers) == [int(value) for value in expected]


def test_algorithms_that_select(
    program: ctypes.CDLL, given: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    x, _, keys = given
    out = torch.zeros(7, N, dtype=torch.int32, device="loom")
    counts = (ctypes.c_long * 7)()
    own, own_keys = x.to("loom"), keys.to("loom")
    torch.accelerator.synchronize()
    program.selections(pointer(own), pointer(own_keys), N, pointer(out), counts)
    is_odd = x % 2 != 0
    numbers = torch.arange(N)
    expected = [
        x[is_odd],
        x[~is_odd],
        torch.unique_consecutive(keys),
        torch.stack([x[run].sum() for run in runs(keys)]),
        torch.cat([x[is_odd], x[~is_odd]]),
        numbers[is_odd],
        numbers[numbers != 3],
    ]
    for row, wanted in zip(out.cpu(), expected, strict=True):
        assert torch.equal(row[: len(wanted)], wanted.int())
    lengths = [len(wanted) for wanted in expected]
    assert list(counts) == [*lengths[:4], int(is_odd.sum()), *lengths[5:]]


def test_zipped_vectors_are_sorted_together(program: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    x, y = torch.randint(0, 9, (2, N), dtype=torch.int32)
    own, other = x.to("loom"), y.to("loom")
    torch.accelerator.synchronize()
    count = program.zipped(pointer(own), pointer(other), N)
    pairs = torch.stack([y, x], 1).unique(dim=0)
    assert count == len(pairs)
    assert torch.equal(other.cpu()[:count], 2 * pairs[:, 0])
    assert torch.equal(own.cpu()[:count], pairs[:, 1])


def test_vectors_and_iterators(program: ctypes.CDLL) -> None:
    assert program.vectors() == 0


def test_algorithms_within_a_kernel(program: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    x = torch.randint(-99, 99, (8, 16), dtype=torch.int32)
    own, out = x.to("loom"), torch.zeros(8, 2, dtype=torch.int32, device="loom")
    torch.accelerator.synchronize()
    program.run_in_kernel(pointer(own), pointer(out), 8, 16)
    torch.accelerator.synchronize()
    assert torch.equal(out.cpu(), torch.stack([x.amin(1), x.sum(1).int()], 1))


def test_random_numbers(program: ctypes.CDLL) -> None:
    """thrust's own mapping of the engine's numbers, and their distribution."""
    n = 20000
    uniform, normal = torch.zeros(2, n, device="loom")
    dice = torch.zeros(n, dtype=torch.int32, device="loom")
    torch.accelerator.synchronize()
    program.random_numbers(pointer(uniform), pointer(dice), pointer(normal), n)
    drawn = pow(48271, 11, 2**31 - 1)
    assert uniform[0].item() == pytest.approx((drawn - 1) / (2**31 - 2) * 2 - 1, abs=1e-5)
    assert set(dice.cpu().tolist()) == set(range(1, 7))
    values = normal.cpu()
    assert values.isfinite().all()
    assert values.mean().item() == pytest.approx(3, abs=0.1)
    assert values.std().item() == pytest.approx(2, abs=0.1)
