"""torch.use_deterministic_algorithms(): unwritten memory reads as a value nobody would take for a result."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_floats_are_nan(dtype: torch.dtype) -> None:
    like = torch.zeros(2, 3, dtype=dtype, device="loom")
    for x in (
        torch.empty(2, 3, dtype=dtype, device="loom"),
        torch.empty_strided((2, 3), (1, 2), dtype=dtype, device="loom"),
        torch.empty_like(like),
        like.new_empty(4),
        torch.empty_permuted((2, 3), (1, 0), dtype=dtype, device="loom"),
    ):
        assert bool(x.isnan().all())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint64])
def test_integers_are_the_largest(dtype: torch.dtype) -> None:
    x = torch.empty(3, dtype=dtype, device="loom")
    assert x.tolist() == [torch.iinfo(dtype).max] * 3


def test_only_what_resize_adds_is_filled() -> None:
    x = torch.ones(2, device="loom").resize_(4)
    assert x[:2].tolist() == [1, 1]
    assert bool(x[2:].isnan().all())


def test_filling_can_be_turned_off() -> None:
    old = torch.full((64,), 7.0, device="loom")
    address = old.data_ptr()
    del old
    torch.utils.deterministic.fill_uninitialized_memory = False
    x = torch.empty(64, device="loom")
    assert x.data_ptr() == address
    assert not x.isnan().any()


def test_index_put_accumulates_the_same_each_time() -> None:
    index = torch.randint(5, (1000,), device="loom")
    values = torch.randn(1000, device="loom")
    first, second = (
        torch.zeros(5, device="loom").index_put_((index,), values, accumulate=True) for _ in range(2)
    )
    assert torch.equal(first, second)
    expected = torch.zeros(5).index_put_((index.cpu(),), values.cpu(), accumulate=True)
    torch.testing.assert_close(first.cpu(), expected)
