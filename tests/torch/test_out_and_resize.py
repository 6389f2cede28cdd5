"""out=, resize_, set_ and the checks against overlapping memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def test_out_is_written_and_returned() -> None:
    x = torch.arange(6.0, device="loom").view(2, 3)
    out = torch.empty(2, 3, device="loom")
    address = out.data_ptr()
    assert torch.add(x, 1, out=out) is out
    assert out.data_ptr() == address
    assert out.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_out_keeps_its_layout_and_dtype() -> None:
    x = torch.arange(6.0, device="loom").view(2, 3)
    base = torch.zeros(3, 4, device="loom")
    torch.mul(x, 2, out=base.T[1:3])
    assert base.tolist() == [[0, 0, 6, 0], [0, 2, 8, 0], [0, 4, 10, 0]]
    wide = torch.empty(2, 3, dtype=torch.float64, device="loom")
    assert torch.add(x, x, out=wide).dtype == torch.float64
    assert wide.tolist() == (x * 2).tolist()
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(x, 0.5, out=torch.empty(2, 3, dtype=torch.int32, device="loom"))


def test_out_is_resized() -> None:
    x = torch.ones(100, 3, device="loom")
    out = torch.empty(0, device="loom")
    torch.add(x, x, out=out)
    assert (out.shape, out.sum().item()) == ((100, 3), 600)
    assert out.untyped_storage().nbytes() == 1200
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(x, x, out=torch.empty(2, device="loom"))
    values, indices = torch.empty(0, device="loom"), torch.empty(0, dtype=torch.long, device="loom")
    torch.max(x.view(3, 100), 1, out=(values, indices))
    assert values.tolist() == [1, 1, 1]
    assert indices.shape == (3,)


def test_out_of_another_device_is_refused() -> None:
    x = torch.ones(2, device="loom:0")
    for other in ("loom:1", "cpu"):
        with pytest.raises(RuntimeError, match=rf"found at least two devices, loom:0 and {other}"):
            torch.add(x, x, out=torch.empty(2, device=other))


def test_conjugated_out() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j], device="loom")
    out = torch.zeros(2, dtype=torch.complex64, device="loom")
    torch.mul(x, 1, out=out.conj())
    assert out.tolist() == [1 - 2j, 3 + 4j]


def test_resize_keeps_contents_and_reuses_memory() -> None:
    x = torch.arange(6.0, device="loom").resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    address = x.data_ptr()
    x.resize_(6)
    assert x.data_ptr() == address
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    x.resize_(1000)
    assert x[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.untyped_storage().nbytes() == 4000
    x.resize_(1, 2, 5, 5, memory_format=torch.channels_last)
    assert x.stride() == (50, 1, 10, 2)
    with pytest.raises(RuntimeError, match="negative dimension"):
        x.resize_(-1)


def test_views_follow_a_storage_that_is_freed_and_comes_back() -> None:
    x = torch.arange(300.0, device="loom")
    view = x[100:]
    x.data_ptr()  # takes device memory under every policy
    used = torch.loom.memory_allocated()
    storage = x.untyped_storage()
    storage.resize_(0)
    assert torch.loom.memory_allocated() == used - 1536
    storage.resize_(1200)
    x.data_ptr()
    assert torch.loom.memory_allocated() == used
    x.copy_(torch.arange(300.0) + 1)
    assert view[0].item() == 101


def test_set_shares_memory() -> None:
    source = torch.arange(6.0, device="loom")
    x = torch.empty(0, device="loom")
    x.set_(source)
    x[0] = 7
    assert source[0].item() == 7
    x.set_(source.untyped_storage(), 1, (2, 2), (1, 2))
    assert x.tolist() == [[1, 3], [2, 4]]
    x.set_(source.untyped_storage())
    assert x.shape == (6,)
    x.set_(source.untyped_storage(), 0, (8,), (1,))  # grows the storage
    assert source.untyped_storage().nbytes() == 32
    assert x[:6].tolist() == source.tolist()
    assert x.set_().numel() == 0
    x.data = source[2:]
    assert x.data_ptr() == source.data_ptr() + 8


@pytest.mark.parametrize("other", ["cpu", "loom:1"])
def test_set_refuses_memory_of_another_device(other: str) -> None:
    x, source = torch.empty(0, device="loom:0"), torch.ones(3, device=other)
    for use in (lambda: x.set_(source), lambda: x.set_(source.untyped_storage())):
        with pytest.raises(RuntimeError, match=other):
            use()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x[:1].expand(3).add_(1), "more than one element of the written-to tensor"),
        (lambda x: x[:1].expand(3).copy_(x[:3]), "more than one element of the written-to tensor"),
        (
            lambda x: torch.add(x[1:], 1, out=x[:-1]),
            "input tensor and the written-to tensor refer to a single",
        ),
        (lambda x: x[1:].copy_(x[:-1]), "input tensor and the written-to tensor refer to a single"),
        (lambda x: torch.cat([x[:2], x[2:]], out=x), "written-to tensor refer to a single"),
        (lambda x: x[1:].mul_(x[:-1]), "input tensor and the written-to tensor refer to a single"),
    ],
    ids=["expanded", "copy to expanded", "out", "copy", "cat", "in place"],
)
def test_overlap_is_refused_as_on_the_cpu(use: Callable[[Tensor], Tensor], message: str) -> None:
    for device in ("cpu", "loom"):
        with pytest.raises(RuntimeError, match=message):
            use(torch.arange(6.0, device=device))


def test_full_overlap_is_allowed() -> None:
    x = torch.arange(3.0, device="loom")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.add(x, x, out=x)
    assert x.tolist() == [0, 2, 4]


def test_resizing_without_memory_changes_nothing() -> None:
    x = torch.zeros(4, dtype=torch.uint8, device="loom").add(1)
    with pytest.raises(torch.OutOfMemoryError):
        x.resize_(1 << 50)
    assert x.shape == (4,)
    assert x.tolist() == [1] * 4
