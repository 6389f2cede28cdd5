"""Products of half precision: each processor's kernels, any number of threads, one chain of sums."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_loom import numerics  # noqa: F401 (registers the ops)

ops = torch.ops.loom_numerics


@pytest.fixture
def _best_kernels_again() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    ops._use_kernels("")
    torch.set_num_threads(threads)


def _chain(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    a, b = left.float(), right.float()
    sums = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        sums = sums + a[:, k : k + 1] * b[k : k + 1]
    return sums


@pytest.mark.long
@pytest.mark.usefixtures("_best_kernels_again")
@pytest.mark.parametrize("kernels", ["avx512", "avx2", "baseline"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_kernels_sum_in_the_order_of_the_depth(kernels: str, dtype: torch.dtype) -> None:
    if not ops._use_kernels(kernels):
        pytest.skip(f"this processor has no {kernels}")
    torch.manual_seed(0)
    for rows, columns, depth in ((1, 70, 2100), (7, 33, 9), (12, 64, 256), (251, 530, 300), (90, 3, 40)):
        left, right = torch.randn(rows, depth).to(dtype), torch.randn(depth, columns).to(dtype)
        expected = _chain(left, right).to(dtype)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for a in (left.to("loom"), left.t().contiguous().to("loom").t()):
                for b in (right.to("loom"), right.t().contiguous().to("loom").t()):
                    assert torch.equal(torch.mm(a, b).cpu(), expected), (rows, columns, depth)


@pytest.mark.usefixtures("_best_kernels_again")
@pytest.mark.parametrize("kernels", ["avx512", "avx2", "baseline"])
def test_every_value_of_float16_is_widened(kernels: str) -> None:
    if not ops._use_kernels(kernels):
        pytest.skip(f"this processor has no {kernels}")
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    one = torch.ones(1, 1, dtype=torch.float16, device="loom")
    expected = (every.float() + 0).half()  # -0 added to 0 is 0
    for got in (torch.mm(every.unsqueeze(1).to("loom"), one), torch.mm(one, every.unsqueeze(0).to("loom"))):
        torch.testing.assert_close(got.flatten().cpu(), expected, rtol=0, atol=0, equal_nan=True)
