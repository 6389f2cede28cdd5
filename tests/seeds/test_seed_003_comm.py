"""Seed 003: tensors sent to several devices and back. Keys as in seed_003.txt."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom

comm = loom.comm
BOTH = ["loom:0", "loom:1"]


def homes(tensors: object) -> list[str]:
    return [str(tensor.device) for tensor in tensors]  # type: ignore[attr-defined]


def same(tensor: Tensor, expected: Tensor) -> bool:
    return torch.equal(tensor.cpu(), expected.cpu())


@pytest.mark.parametrize("source", ["cpu", "loom:1"])
@pytest.mark.seed(2, "comm.broadcast")
@pytest.mark.seed(3, "broadcast/1", "broadcast/2", "broadcast/3", "broadcast/4", "broadcast/5")
@pytest.mark.exercises("torch.cuda.comm.broadcast")
def test_broadcast(source: str) -> None:
    tensor = torch.arange(6.0, device=source)
    copies = comm.broadcast(tensor, [0, "loom:1"])
    assert type(copies) is tuple
    assert homes(copies) == BOTH
    assert all(same(copy, tensor) for copy in copies)
    out = [torch.zeros(6, device=device) for device in BOTH]
    returned = comm.broadcast(tensor, out=out)
    assert type(returned) is tuple
    assert all(a is b and same(b, tensor) for a, b in zip(returned, out, strict=True))
    for wrong in ({}, {"devices": [0], "out": out}):
        with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
            comm.broadcast(tensor, **wrong)


@pytest.mark.parametrize("source", ["cpu", "loom:0"])
@pytest.mark.seed(2, "comm.broadcast_coalesced")
@pytest.mark.seed(3, "broadcast_coalesced/1", "broadcast_coalesced/2")
@pytest.mark.seed(3, "broadcast_coalesced/3", "broadcast_coalesced/4")
@pytest.mark.exercises("torch.cuda.comm.broadcast_coalesced")
def test_broadcast_coalesced(source: str) -> None:
    tensors = [torch.full((size,), float(size), device=source) for size in (3, 5, 200, 2)]
    for buffer_size in (32, 10485760):
        copies = comm.broadcast_coalesced(tensors, BOTH, buffer_size)
        for device, group in zip(BOTH, copies, strict=True):
            assert homes(group) == [device] * 4
            assert all(same(copy, tensor) for copy, tensor in zip(group, tensors, strict=True))
    # In one buffer these lie side by side; with a buffer for each, they do not.
    step = 16
    small = [torch.ones(4, device=source) for _ in range(2)]
    on_1 = comm.broadcast_coalesced(small, BOTH)[1]
    assert on_1[1].data_ptr() - on_1[0].data_ptr() == step
    on_1 = comm.broadcast_coalesced(small, BOTH, 1)[1]
    assert abs(on_1[1].data_ptr() - on_1[0].data_ptr()) >= 512
    with pytest.raises(RuntimeError):
        comm.broadcast_coalesced([torch.ones(1, device="loom:0"), torch.ones(1, device="loom:1")], BOTH)


@pytest.mark.seed(2, "comm.reduce_add")
@pytest.mark.seed(3, "reduce_add/1", "reduce_add/2", "reduce_add/3")
@pytest.mark.exercises("torch.cuda.comm.reduce_add")
def test_reduce_add() -> None:
    inputs = [torch.full((2, 3), value, dtype=torch.float64, device=d) for value, d in ((1, 0), (2, 1))]
    for destination, expected in ((None, "loom:0"), (1, "loom:1"), ("loom:0", "loom:0")):
        total = comm.reduce_add(inputs, destination)
        assert (str(total.device), total.shape, total.dtype) == (expected, (2, 3), torch.float64)
        assert total.layout == torch.strided
        assert same(total, torch.full((2, 3), 3.0, dtype=torch.float64))
    assert same(inputs[0], torch.ones(2, 3, dtype=torch.float64))
    other_shape = torch.ones(3, 2, dtype=torch.float64, device="loom:1")
    with pytest.raises(ValueError, match="invalid size"):
        comm.reduce_add([inputs[0], other_shape])
    for wrong in (inputs[1].float(), inputs[1].to_sparse()):
        with pytest.raises(RuntimeError):
            comm.reduce_add([inputs[0], wrong])


@pytest.mark.parametrize("source", ["cpu", "loom:0"])
@pytest.mark.seed(2, "comm.scatter")
@pytest.mark.seed(3, "scatter/1", "scatter/2", "scatter/3", "scatter/4", "scatter/5", "scatter/9")
@pytest.mark.exercises("torch.cuda.comm.scatter")
def test_scatter_to_devices(source: str) -> None:
    tensor = torch.arange(12.0, device=source).reshape(2, 6)
    pieces = comm.scatter(tensor, [0, 1])
    assert type(pieces) is tuple
    assert homes(pieces) == BOTH
    assert all(same(piece, row) for piece, row in zip(pieces, tensor.split(1), strict=True))
    pieces = comm.scatter(tensor, BOTH, [1, 5], dim=1)
    assert same(pieces[0], tensor[:, :1])
    assert same(pieces[1], tensor[:, 1:])
    streams = [loom.Stream(0), loom.Stream(1)]
    pieces = comm.scatter(tensor, [0, 1], dim=-1, streams=streams)
    for stream in streams:
        stream.synchronize()
    assert [piece.shape for piece in pieces] == [(2, 3), (2, 3)]
    assert same(pieces[1], tensor[:, 3:])
    for sizes in ([1, 1], [6], [2, 2, 2]):
        with pytest.raises(RuntimeError, match="chunk_sizes"):
            comm.scatter(tensor, [0, 1], sizes, 1)


@pytest.mark.seed(3, "scatter/6", "scatter/7", "scatter/8", "scatter/10")
@pytest.mark.exercises("torch.cuda.comm.scatter")
def test_scatter_into_tensors() -> None:
    tensor = torch.arange(12.0).reshape(2, 6)
    out = [torch.zeros(2, 4, device="loom:1"), torch.zeros(2, 2, device="loom:0")]
    returned = comm.scatter(tensor, dim=1, out=out)
    assert type(returned) is tuple
    assert all(a is b for a, b in zip(returned, out, strict=True))
    assert same(out[0], tensor[:, :4])
    assert same(out[1], tensor[:, 4:])
    with pytest.raises(RuntimeError):
        comm.scatter(tensor)
    with pytest.raises(RuntimeError, match="devices"):
        comm.scatter(tensor, [0, 1], dim=1, out=out)
    with pytest.raises(RuntimeError, match="chunk_sizes"):
        comm.scatter(tensor, chunk_sizes=[4, 2], dim=1, out=out)
    for wrong in ([out[0]], [out[0], torch.zeros(3, 2, device="loom:0")]):
        with pytest.raises(RuntimeError, match=r"[Oo]utput tensor"):
            comm.scatter(tensor, dim=1, out=wrong)


@pytest.mark.seed(2, "comm.gather")
@pytest.mark.seed(3, "gather/1", "gather/2", "gather/3", "gather/4", "gather/5")
@pytest.mark.seed(3, "gather/6", "gather/7", "gather/8")
@pytest.mark.exercises("torch.cuda.comm.gather")
def test_gather() -> None:
    rows = [torch.ones(1, 2, device="loom:1"), torch.zeros(2, 2, device="loom:0")]
    expected = torch.tensor([[1.0, 1], [0, 0], [0, 0]])
    with loom.device(1):
        default = comm.gather(rows)
    for place, gathered in (
        ("loom:1", default),
        ("loom:0", comm.gather(rows, 0, 0)),
        ("cpu", comm.gather(rows, destination=torch.device("cpu"))),
    ):
        assert str(gathered.device) == place
        assert same(gathered, expected)
    columns = [row.T.contiguous() for row in rows]
    for device in ("cpu", "loom:1"):
        out = torch.empty(2, 3, device=device)
        assert comm.gather(columns, 1, out=out) is out
        assert same(out, expected.T)
    with pytest.raises(RuntimeError, match="'destination' must not be specified"):
        comm.gather(columns, 1, 0, out=out)
    for sizes in ((2, 2), (3, 2)):
        with pytest.raises(RuntimeError):
            comm.gather(columns, 1, out=torch.empty(sizes))
    with pytest.raises(RuntimeError):
        comm.gather(rows, dim=1)


def test_the_destination_may_be_the_cpu_and_copies_are_complete() -> None:
    parts = [torch.full((1000, 100), 1.0, device=d) * 2 for d in BOTH]
    assert comm.gather(parts, destination="cpu").sum() == 2 * 2 * 1000 * 100
