"""torch.loom.comm: tensors sent to several devices and collected from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom
from torch_loom.device import comm
from torch_loom.errors import CommunicationError, DeviceTypeError, InvalidDeviceError, ShapeError

if TYPE_CHECKING:
    from tests.gate import Gate

VALUES = torch.arange(12.0).reshape(4, 3)


def on(index: int, tensor: torch.Tensor = VALUES) -> torch.Tensor:
    return tensor.to(f"loom:{index}")


def places(tensors: Any) -> list[int]:
    return [tensor.get_device() for tensor in tensors]


@pytest.mark.exercises("torch.cuda.comm.broadcast")
@pytest.mark.parametrize("source", ["cpu", "loom:0", "loom:1"])
def test_broadcast(source: str) -> None:
    tensor = VALUES.to(source)
    copies = comm.broadcast(tensor, ["loom:1", 0])
    assert places(copies) == [1, 0]
    assert all(torch.equal(copy.cpu(), VALUES) for copy in copies)
    assert [copy is tensor for copy in copies] == [source == "loom:1", source == "loom:0"]
    out = [torch.zeros(4, 3, device="loom:1"), torch.zeros(4, 3, device="loom:0")]
    assert comm.broadcast(tensor, out=out) == tuple(out)
    assert all(torch.equal(copy.cpu(), VALUES) for copy in out)


@pytest.mark.exercises("torch.cuda.comm.broadcast_coalesced")
def test_broadcast_coalesced_sends_small_tensors_together() -> None:
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), device="loom:0")
    tensors = [on(0), on(0, VALUES.int()), sparse, on(0, VALUES + 1)]
    copies = comm.broadcast_coalesced(tensors, [0, 1])
    assert all(copy is tensor for copy, tensor in zip(copies[0], tensors, strict=True))
    for copy, tensor in zip(copies[1], tensors, strict=True):
        assert copy.get_device() == 1
        assert copy.layout == tensor.layout
        assert torch.equal(copy.to_dense().cpu(), tensor.to_dense().cpu())
    # The two float tensors came in one buffer, but are changed independently of each other.
    assert copies[1][0].untyped_storage().data_ptr() == copies[1][3].untyped_storage().data_ptr()
    assert copies[1][0]._version == 0
    single = comm.broadcast_coalesced(tensors, [1], buffer_size=1)[0]
    assert single[0].untyped_storage().data_ptr() != single[3].untyped_storage().data_ptr()


@pytest.mark.exercises("torch.cuda.comm.scatter")
@pytest.mark.parametrize("source", ["cpu", "loom:0"])
def test_scatter(source: str) -> None:
    tensor = VALUES.to(source)
    parts = comm.scatter(tensor, [0, 1])
    assert places(parts) == [0, 1]
    assert torch.equal(parts[1].cpu(), VALUES[2:])
    parts = comm.scatter(tensor, [0, 1], chunk_sizes=[2, 1], dim=-1)
    assert torch.equal(parts[0].cpu(), VALUES[:, :2])
    assert torch.equal(parts[1].cpu(), VALUES[:, 2:])
    assert len(comm.scatter(tensor[:1], [0, 1])) == 1
    out = [torch.zeros(1, 3, device="loom:1"), torch.zeros(3, 3, device="loom:0")]
    assert comm.scatter(tensor, out=out) == tuple(out)
    assert torch.equal(out[1].cpu(), VALUES[1:])


@pytest.mark.exercises("torch.cuda.comm.scatter")
def test_scatter_copies_on_the_given_streams(gate: Gate) -> None:
    side = loom.Stream(1)
    gate.hold(side)
    pinned = VALUES.pin_memory()
    parts = comm.scatter(pinned, [0, 1], streams=[None, side])
    assert not side.query()
    assert loom.current_stream(1).query()
    loom.current_stream(1).wait_stream(side)
    gate.open()
    assert torch.equal(parts[1].cpu(), VALUES[2:])
    assert loom.current_stream(1) == loom.default_stream(1)


@pytest.mark.exercises("torch.cuda.comm.gather")
def test_gather() -> None:
    parts = [on(1, VALUES[:1]), on(0, VALUES[1:])]
    for destination, where in ((None, "loom:0"), (1, "loom:1"), ("cpu", "cpu")):
        result = comm.gather(parts, destination=destination)
        assert str(result.device) == where
        assert torch.equal(result.cpu(), VALUES)
    with pytest.warns(FutureWarning, match="cpu"):
        assert comm.gather(parts, 0, -1).device.type == "cpu"
    columns = comm.gather([on(0, VALUES[:, :1]), on(1, VALUES[:, 1:])], dim=-1)
    assert torch.equal(columns.cpu(), VALUES)
    out = torch.zeros(4, 3)
    assert comm.gather(parts, out=out) is out
    assert torch.equal(out, VALUES)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_parts_on_the_tensors_own_device_are_views_of_it(dim: int) -> None:
    tensor = on(0)
    parts = comm.scatter(tensor, [0, 1], [2, tensor.shape[dim] - 2], dim, [loom.Stream(0), None])
    assert parts[0].data_ptr() == tensor.data_ptr()
    assert parts[0].stride() == tensor.stride()
    assert torch.equal(parts[0].cpu(), VALUES.narrow(dim, 0, 2))


IMAGES = torch.arange(2 * 4 * 4 * 5.0).reshape(2, 4, 4, 5)
LAYOUTS = {
    "channels_last": IMAGES.contiguous(memory_format=torch.channels_last),
    "channels_last_3d": IMAGES[:, :, None].contiguous(memory_format=torch.channels_last_3d),
    "transposed": IMAGES.permute(3, 0, 2, 1),
    "contiguous": IMAGES,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", ["cpu", "loom:0"])
def test_what_is_sent_keeps_its_layout(layout: str, source: str) -> None:
    tensor = LAYOUTS[layout].to(source)
    for copy in comm.broadcast(tensor, [0, 1]):
        assert copy.stride() == tensor.stride()
    # Together with others, in one buffer.
    strides = [tensor.stride(), tensor.stride(), tensor[:, :2].clone().stride()]
    for copies in comm.broadcast_coalesced([tensor, tensor + 1, tensor[:, :2]], [1, 1]):
        assert [copy.stride() for copy in copies] == strides
        assert torch.equal(copies[1].cpu(), LAYOUTS[layout] + 1)
    expected = LAYOUTS[layout].split([1, tensor.shape[0] - 1])
    for part, chunk in zip(comm.scatter(tensor, [1, 1], [1, tensor.shape[0] - 1]), expected, strict=True):
        assert part.stride() == chunk.clone().stride()
        assert torch.equal(part.cpu(), chunk)
    lists = [[tensor.to(f"loom:{i}"), tensor.to(f"loom:{i}").contiguous()] for i in range(2)]
    lists[1][0] = lists[1][0].contiguous()  # laid out otherwise than its partner
    for total, first in zip(comm.reduce_add_coalesced(lists, 0), lists[0], strict=True):
        assert total.stride() == first.stride()
        assert torch.equal(total.cpu(), LAYOUTS[layout] * 2)


@pytest.mark.parametrize("layout", ["channels_last", "channels_last_3d"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gathered_tensors_are_channels_last_if_all_parts_are(layout: str, dim: int) -> None:
    whole, memory_format = LAYOUTS[layout], getattr(torch, layout)
    parts = [part.to(f"loom:{i}") for i, part in enumerate(whole.chunk(2, dim))]
    for destination in (0, "cpu"):
        result = comm.gather(parts, dim, destination)
        assert result.is_contiguous(memory_format=memory_format)
        assert torch.equal(result.cpu(), whole)
    mixed = [parts[0], parts[1].contiguous()]
    assert comm.gather(mixed, dim).is_contiguous()


@pytest.mark.exercises("torch.cuda.comm.reduce_add", "torch.cuda.comm.reduce_add_coalesced")
def test_reduce_add() -> None:
    total = comm.reduce_add([on(0), on(1, VALUES * 2)], destination=1)
    assert total.get_device() == 1
    assert torch.equal(total.cpu(), VALUES * 3)
    alone = on(0)
    assert comm.reduce_add([alone]) is alone
    sparse = [torch.sparse_coo_tensor([[i]], [2.0], (4,), device=f"loom:{i}") for i in range(2)]
    assert comm.reduce_add(sparse).to_dense().tolist() == [2.0, 2.0, 0.0, 0.0]
    lists = [[on(i), sparse[i], on(i, VALUES.double()), on(i, VALUES[0])] for i in range(2)]
    sums = comm.reduce_add_coalesced(lists, 0, buffer_size=64)
    assert [s.dtype for s in sums] == [torch.float32, torch.float32, torch.float64, torch.float32]
    assert torch.equal(sums[0].cpu(), VALUES * 2)
    assert sums[1].is_sparse
    assert torch.equal(sums[3].cpu(), VALUES[0] * 2)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: comm.broadcast(VALUES), CommunicationError, "Exactly one of"),
    (lambda: comm.broadcast(VALUES, [0], out=[on(0)]), CommunicationError, "Exactly one of"),
    (
        lambda: comm.broadcast(VALUES, out=[on(0, VALUES[0])]),
        CommunicationError,
        r"to have same shape as the source tensor \[4, 3\], but output tensor at index 0",
    ),
    (
        lambda: comm.broadcast(VALUES, out=[VALUES]),
        CommunicationError,
        "Expected all output tensors to be LOOM tensors, but output tensor at index 0 has device 'cpu'",
    ),
    (lambda: comm.broadcast(VALUES, [7]), InvalidDeviceError, "7"),
    (lambda: comm.broadcast(VALUES, ["cpu"]), DeviceTypeError, "cpu"),
    (lambda: comm.broadcast_coalesced([on(0), on(1)], [0]), CommunicationError, "loom:0.*loom:1"),
    (lambda: comm.scatter(VALUES), CommunicationError, "Exactly one of"),
    (lambda: comm.scatter(VALUES, [0], out=[on(0)]), CommunicationError, "'devices' must not"),
    (
        lambda: comm.scatter(VALUES, [0, 1], [4]),
        CommunicationError,
        "Expected devices and chunk_sizes to be of same length",
    ),
    (lambda: comm.scatter(VALUES, [0, 1], [1, 1]), CommunicationError, "add up to 4"),
    (lambda: comm.scatter(VALUES, []), CommunicationError, "Expected at least one device to scatter to"),
    (lambda: comm.scatter(VALUES, out=[]), CommunicationError, "at least one output tensor to scatter to"),
    (
        lambda: comm.scatter(VALUES, out=[VALUES]),
        CommunicationError,
        "Expected all output tensors to be LOOM tensors, but output tensor at index 0",
    ),
    (
        lambda: comm.scatter(VALUES, out=[on(0)[None]]),
        CommunicationError,
        "Output tensor at index 0 has incorrect shape",
    ),
    (
        lambda: comm.scatter(VALUES, out=[on(0)[1:]]),
        CommunicationError,
        "Total size for output tensors along scatter dim 0 does not match",
    ),
    (lambda: comm.scatter(VALUES, [0], dim=2), IndexError, "dimension 2"),
    (
        lambda: comm.scatter(VALUES, [0], streams=[loom.Stream(1)]),
        CommunicationError,
        "stream at index 0 .was 1. to match",
    ),
    (lambda: comm.gather([]), CommunicationError, "Expected at least one tensor to gather from"),
    (lambda: comm.gather([VALUES]), CommunicationError, "Expected all input tensors to be LOOM tensors, "),
    (lambda: comm.gather([on(0), on(1)[None]]), CommunicationError, "the same number of dimensions"),
    (
        lambda: comm.gather([on(0), on(1, VALUES[:, :2])]),
        CommunicationError,
        "Input tensor at index 1 has invalid shape",
    ),
    (lambda: comm.gather([on(0)], destination=0, out=on(0)), CommunicationError, "'destination' must not"),
    (
        lambda: comm.gather([on(0)], out=torch.zeros(3)),
        CommunicationError,
        r"out tensor to have shape \[4, 3\]",
    ),
    (
        lambda: comm.reduce_add([on(0), on(1, VALUES[:2])]),
        ShapeError,
        "input 1 has invalid size: got 2x3, but expected 4x3",
    ),
    (
        lambda: comm.reduce_add([on(0), on(0)], 1),
        CommunicationError,
        "reduce_add expects destination to be on",
    ),
    # As PyTorch's own.
    (lambda: comm.reduce_add([on(0), VALUES]), AssertionError, "to be on GPUs, but input 1 is on CPU"),
    (lambda: comm.reduce_add_coalesced([[on(0)], []]), CommunicationError, r"\[1, 0\]"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_errors_name_what_does_not_fit(case: int) -> None:
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call()
