"""Neighbours: DLPack, numpy, pinned memory and DataLoader."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("legacy", [False, True])
def test_dlpack_to_a_loom_tensor_shares_memory(legacy: bool) -> None:
    x = torch.arange(6.0, device="loom:1").view(2, 3).T
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x) if legacy else x)
    assert y.device == x.device
    assert y.stride() == x.stride()
    y.zero_()
    assert x.sum().item() == 0


def test_dlpack_keeps_the_memory_alive() -> None:
    capsule = torch.utils.dlpack.to_dlpack(torch.full((1000,), 7.0, device="loom"))
    torch.zeros(1000, device="loom")
    assert torch.from_dlpack(capsule).unique().tolist() == [7]


def test_dlpack_names_the_device() -> None:
    kind, index = torch.zeros(1, device="loom:1").__dlpack_device__()
    assert (int(kind), index) == (12, 1)  # kDLExtDev


def test_numpy_is_refused_and_shown_the_way() -> None:
    x = torch.ones(3, device="loom")
    message = "can't convert loom:0 device type tensor to numpy. Use Tensor.cpu()"
    for convert in (x.numpy, lambda: __import__("numpy").asarray(x)):
        with pytest.raises(TypeError, match=message):
            convert()
    assert x.cpu().numpy().sum() == 3
    assert x.numpy(force=True).sum() == 3


def test_pinned_memory() -> None:
    x = torch.arange(3.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert not x.is_pinned()
    assert torch.empty(4, pin_memory=True).is_pinned()
    assert pinned.pin_memory() is pinned
    assert torch.equal(pinned, x)
    assert pinned.to("loom", non_blocking=True).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device="loom", pin_memory=True)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.zeros(2, device="loom").pin_memory()


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader_pins(workers: int) -> None:
    torch.zeros(1, device="loom")  # workers fork from a process that uses the device
    dataset = TensorDataset(torch.arange(6.0), torch.arange(6))
    loader = DataLoader(dataset, batch_size=4, pin_memory=True, num_workers=workers)
    seen = []
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
        seen += (x.to("loom", non_blocking=True) * 2).tolist()
    assert seen == [0, 2, 4, 6, 8, 10]
