"""Saving, loading, pickling and copying keep values, devices and shared memory."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn


def saved(value: object) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


def test_round_trip_keeps_device_and_sharing() -> None:
    x = torch.arange(6.0, device="loom:1").view(2, 3)
    loaded = torch.load(saved({"x": x, "row": x[1]}))
    assert loaded["x"].device == torch.device("loom:1")
    assert torch.equal(loaded["x"].cpu(), x.cpu())
    loaded["row"].zero_()
    assert loaded["x"].tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize("where", ["cpu", "loom:0", torch.device("loom:1"), "meta"])
def test_map_location(where: str | torch.device) -> None:
    x = torch.arange(3.0)
    for source in (x, x.to("loom:1")):
        loaded = torch.load(saved(source), map_location=where)
        assert loaded.device == torch.device(where)
        assert loaded.is_meta or torch.equal(loaded.cpu(), x)
    mapped = torch.load(saved(x.to("loom:1")), map_location={"loom:1": "loom:0"})
    assert mapped.device == torch.device("loom:0")


def test_memory_mapped_file(tmp_path: Path) -> None:
    x = torch.arange(1000.0)
    torch.save({"x": x}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", mmap=True, map_location="cpu")["x"].to("loom")
    assert torch.equal(loaded.cpu(), x)


def test_state_dict_crosses_devices() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    on_device = copy.deepcopy(module).to("loom")
    on_device.load_state_dict(torch.load(saved(module.state_dict())))
    back = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    back.load_state_dict(torch.load(saved(on_device.state_dict()), map_location="cpu"))
    assert all(p.is_loom for p in on_device.parameters())
    for ours, theirs in zip(back.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_device_that_is_not_there() -> None:
    data = saved(torch.ones(2, device="loom:1")).getvalue()
    assert data.count(b"loom:1") == 1
    with pytest.raises(RuntimeError, match=r"\b7\b"):
        torch.load(io.BytesIO(data.replace(b"loom:1", b"loom:7")))


def test_pickle() -> None:
    x = torch.arange(3.0, device="loom", requires_grad=True)
    loaded = pickle.loads(pickle.dumps(x))
    assert (loaded.device, loaded.requires_grad) == (x.device, True)
    assert torch.equal(loaded, x)


def test_deepcopy_keeps_sharing_apart_from_the_original() -> None:
    x = torch.arange(4.0, device="loom")
    first, second = copy.deepcopy([x, x[2:]])
    second.zero_()
    assert first.tolist() == [0, 1, 0, 0]
    assert x.tolist() == [0, 1, 2, 3]
    module = nn.Linear(2, 2, device="loom")
    module.tied = module.weight
    copied = copy.deepcopy(module)
    assert copied.tied is copied.weight
    assert copied.weight.is_loom
    assert copied.weight.data_ptr() != module.weight.data_ptr()


def test_storage_copies() -> None:
    storage = torch.arange(3.0, device="loom").untyped_storage()
    copied = copy.deepcopy(storage)
    assert copied.device == storage.device
    assert copied.data_ptr() != storage.data_ptr()
    assert bytes(copied.cpu()) == bytes(storage.cpu())
