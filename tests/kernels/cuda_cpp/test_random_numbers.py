"""cuRAND's generators in kernels: its numbers, where they are published, and their distributions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = (PROGRAMS / "random.cu").read_text(encoding="utf-8")


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


@pytest.mark.long
def test_published_numbers_of_xorwow() -> None:
    """Ten outputs that a user of a GPU has printed, of the seed 0: the first of ten sequences.

    https://forums.developer.nvidia.com/t/xorwow-generator-understanding-in-curand/44909
    """
    out = torch.zeros(10, dtype=torch.int32, device="loom")
    kernel("xorwow")((1,), (10,), (out, 0))
    assert [value % 2**32 for value in out.tolist()] == [
        *(3179217846, 3955638199, 167591721, 4161663997, 3973448494),
        *(1917059131, 2866113984, 472148682, 2019573489, 2204150021),
    ]


@pytest.mark.long
def test_philox_is_torchs_under_the_name_cuda(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "philox.py", {"TORCH_LOOM_DEVICE_NAME": "cuda"})


@pytest.mark.long
def test_skipping_ahead_is_walking() -> None:
    count = torch.zeros(3, dtype=torch.int32, device="loom")
    kernel("skips")((1,), (1,), (count,))
    assert count.tolist() == [0, 0, 0]


@pytest.mark.long
@pytest.mark.parametrize("state", ["curandState", "curandStatePhilox4_32_10_t"])
@pytest.mark.parametrize("mean", [3.5, 150.0, 5000.0])
def test_distributions(state: str, mean: float) -> None:
    from scipy import stats  # takes seconds to import

    out = torch.zeros(64 * 40, 7, dtype=torch.float64, device="loom")
    kernel(f"distributions<{state}>")((2,), (32,), (out, 40, mean))
    columns = out.cpu().T
    for column in (0, 1):
        assert stats.kstest(columns[column].numpy(), "uniform").pvalue > 1e-3
        assert 0 < columns[column].min() <= columns[column].max() <= 1
    for column, (center, width) in {2: (0, 1), 3: (0, 1), 4: (1, 0.5), 6: (0, 1)}.items():
        assert stats.kstest(columns[column].numpy(), "norm", args=(center, width)).pvalue > 1e-3
    counts = columns[5]
    assert torch.equal(counts, counts.floor())
    assert abs(counts.mean().item() - mean) < 5 * (mean / 2560) ** 0.5
    assert abs(counts.var().item() / mean - 1) < 0.15
