"""Tensors sent to several devices and collected from them, as in ``torch.cuda.comm``.

Copies between devices are ordered as any copy is: after what is pending on the current streams of both.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._utils import _flatten_sparse_tensors, _take_tensors, _unflatten_sparse_tensors

from torch_loom.device._core.device_index import DEVICE_TYPE, _check_index, _existing_index, _get_device_index
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.device.comm.checks import (
    check_alike,
    check_on_device,
    gathered_shape,
    scattered_sizes,
    shown,
    split,
    streams_of,
    wrapped_dim,
)
from torch_loom.device.comm.layouts import common_format, flattened, memory_order, unflattened
from torch_loom.device.streams import stream as stream_context
from torch_loom.errors import CommunicationError, HostTensorError

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]

# Tensors are sent together until they are this large: PyTorch's default.
_BUFFER_BYTES = 10 * 2**20


def broadcast(
    tensor: torch.Tensor, devices: Iterable[Any] | None = None, *, out: Sequence[torch.Tensor] | None = None
) -> tuple[torch.Tensor, ...]:
    """Copy a tensor to several devices.

    Args:
        tensor: on any device, the host's included.
        devices: where to. Each copy is new, but on the tensor's own device it is the tensor itself.
        out: instead of ``devices``, the tensors to copy to: on these devices, of ``tensor``'s shape.

    Returns:
        The copies, in the order of ``devices``; or ``out``.

    Raises:
        CommunicationError: both or neither of ``devices`` and ``out`` are given, or a tensor of ``out`` is on
            the host or has another shape. (It is a RuntimeError.)
        InvalidDeviceError: there is no such device.
    """
    if (devices is None) == (out is None):
        raise CommunicationError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and "
            f"out={shown(out)}"
        )
    if devices is not None:
        return tuple(_copied(tensor, index) for index in _indices(devices))
    assert out is not None
    for i, result in enumerate(out):
        check_on_device(result, "output tensors", f"output tensor at index {i}")
        if result.shape != tensor.shape:
            raise CommunicationError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, "
                f"but output tensor at index {i} has shape {list(result.shape)}"
            )
    for result in out:
        result.copy_(tensor, non_blocking=True)
    return tuple(out)


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Iterable[Any], buffer_size: int = _BUFFER_BYTES
) -> list[list[torch.Tensor]]:
    """Copy tensors to several devices, small tensors together in one copy.

    Args:
        tensors: all on one device or all on the host; some may be sparse.
        devices: where to.
        buffer_size: bytes up to which tensors are sent together; more than 0.

    Returns:
        For each device the copies of all tensors, laid out as these are; on the tensors' own device they are
        the tensors themselves.

    Raises:
        CommunicationError: the tensors are on several devices, no device is named or ``buffer_size`` is not
            positive.
    """
    tensors = list(tensors)
    indices = _indices(devices)
    if not indices:
        raise CommunicationError("Expected at least one device to broadcast to, but got none")
    if buffer_size <= 0:
        raise CommunicationError(f"Expected buffer_size to be positive, but got {buffer_size}")
    homes = {tensor.device for tensor in tensors}
    if len(homes) > 1:
        names = sorted(str(home) for home in homes)
        raise CommunicationError(
            f"All tensors must be on devices[0]: {indices[0]}, or all in one other place, but they are on "
            f"{names}"
        )
    home = next(iter(homes), None)
    copies: list[list[torch.Tensor]] = []
    for index in indices:
        target = torch.device(DEVICE_TYPE, index)
        copies.append(tensors if target == home else _sent_together(tensors, target, buffer_size))
    return copies


def scatter(
    tensor: torch.Tensor,
    devices: Iterable[Any] | None = None,
    chunk_sizes: Iterable[int] | None = None,
    dim: int = 0,
    streams: Iterable[torch.Stream | None] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Distribute the parts of a tensor over several devices.

    Args:
        tensor: on any device, the host's included.
        devices: where the parts go.
        chunk_sizes: how many elements along ``dim`` each device gets; equal parts if None.
        dim: along which dimension to cut; negative counts from the end.
        streams: for each device the stream to copy on; its current one where None. A program waits for it
            before it uses the part.
        out: instead of ``devices`` and ``chunk_sizes``, the tensors that receive the parts: on these devices,
            their sizes along ``dim`` adding up to the tensor's.

    Returns:
        The parts, fewer than devices when there are not enough elements, laid out as the tensor is; those on
        its own device are views of it. Or ``out``.

    Raises:
        CommunicationError: both or neither of ``devices`` and ``out`` are given, sizes do not fit, or a
            stream belongs to another device.
        IndexError: there is no such dimension.
    """
    if out is not None:
        return _scatter_to(tensor, devices, chunk_sizes, dim, streams, out)
    if devices is None:
        raise CommunicationError(
            "Exactly one of 'devices' and 'out' must be specified, but got devices=None and out=None"
        )
    indices = _indices(devices)
    if not indices:
        raise CommunicationError("Expected at least one device to scatter to, but got none")
    dim = wrapped_dim(dim, tensor)
    if chunk_sizes is None:
        parts = tensor.chunk(len(indices), dim)
    else:
        sizes = list(chunk_sizes)
        if len(sizes) != len(indices):
            raise CommunicationError(
                f"Expected devices and chunk_sizes to be of same length, but got len(devices) = "
                f"{len(indices)} and len(chunk_sizes) = {len(sizes)}"
            )
        parts = split(tensor, sizes, dim)
    scattered = []
    targets = zip(parts, indices, streams_of(streams, indices), strict=False)
    for part, index, stream in targets:
        with stream_context(stream) if stream is not None else contextlib.nullcontext():
            scattered.append(part.to(torch.device(DEVICE_TYPE, index), non_blocking=True))
    return tuple(scattered)


def gather(
    tensors: Iterable[torch.Tensor], dim: int = 0, destination: Any = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Concatenate tensors of several devices.

    Args:
        tensors: on these devices, of equal sizes but along ``dim``.
        dim: along which dimension; negative counts from the end.
        destination: where the result goes: a device, an index, or ``"cpu"`` (-1 is deprecated); the current
            device if None.
        out: instead of ``destination``, the tensor that receives the result, on any device.

    Returns:
        The result, in channels_last if all tensors are; or ``out``.

    Raises:
        CommunicationError: no tensors, a tensor is on the host, sizes do not fit, or ``out`` and
            ``destination`` are both given.
        IndexError: there is no such dimension.
    """
    tensors = list(tensors)
    shape = gathered_shape(tensors, dim)
    if out is None:
        if isinstance(destination, int) and destination == -1:
            warnings.warn(
                '-1 for the host is deprecated: use "cpu" as the destination', FutureWarning, stacklevel=2
            )
        index = _get_device_index(destination, optional=True, allow_cpu=True)
        home = torch.device("cpu") if index == -1 else torch.device(DEVICE_TYPE, _existing_index(index))
        out = torch.empty(shape, dtype=tensors[0].dtype, device=home, memory_format=common_format(tensors))
    elif destination is not None:
        raise CommunicationError(
            f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
        )
    elif list(out.shape) != shape:
        raise CommunicationError(f"Expected out tensor to have shape {shape}, but got {list(out.shape)}")
    dim = wrapped_dim(dim, tensors[0])
    # What the host reads must have arrived when this returns.
    is_device = out.device.type == DEVICE_TYPE
    for part, tensor in zip(
        torch.split_with_sizes(out, [t.shape[dim] for t in tensors], dim), tensors, strict=True
    ):
        part.copy_(tensor, non_blocking=is_device)
    return out


def reduce_add(inputs: Iterable[torch.Tensor], destination: Any = None) -> torch.Tensor:
    """Add tensors of several devices.

    Args:
        inputs: of equal shapes, dtypes and layouts, on these devices; one of them on ``destination``. Sparse
            tensors may have different numbers of elements.
        destination: where the sum goes; the current device if None.

    Returns:
        The sum: new, but for a single input, which is returned as it is.

    Raises:
        HostTensorError: an input is not on these devices. (It is an AssertionError.)
        CommunicationError: no inputs, none is on ``destination``, or dtypes or layouts differ.
        ShapeError: shapes differ. (It is a ValueError.)
    """
    tensors = list(inputs)
    index = _existing_index(destination)
    if not tensors:
        raise CommunicationError("Expected at least one tensor to add, but got none")
    root = None
    for i, tensor in enumerate(tensors):
        if tensor.device.type != DEVICE_TYPE:
            raise HostTensorError(
                f"reduce_add expects all inputs to be on GPUs, but input {i} is on "
                f"{tensor.device.type.upper()}"
            )
        check_alike(tensor, tensors[0], f"input {i}")
        if tensor.get_device() == index:
            root = i
    if root is None:
        homes = [str(tensor.device) for tensor in tensors]
        raise CommunicationError(
            f"reduce_add expects destination to be on the same GPU with one of the tensors: it is "
            f"{DEVICE_TYPE}:{index}, but they are on {homes}"
        )
    if len(tensors) == 1:
        return tensors[0]
    home = torch.device(DEVICE_TYPE, index)
    others = [tensor.to(home, non_blocking=True) for i, tensor in enumerate(tensors) if i != root]
    result = tensors[root] + others[0]
    for other in others[1:]:
        result.add_(other)
    return result


def reduce_add_coalesced(
    inputs: Iterable[Iterable[torch.Tensor]], destination: Any = None, buffer_size: int = _BUFFER_BYTES
) -> tuple[torch.Tensor, ...]:
    """Add lists of tensors, a list from each device, element by element; small tensors in one go.

    Args:
        inputs: for each device its tensors, as many as the others'. Where only some of the tensors in one
            place are sparse, they are made dense.
        destination: where the sums go; the current device if None.
        buffer_size: bytes up to which tensors are added together; more than 0.

    Raises:
        CommunicationError: as :func:`reduce_add`; or the lists differ in length.
        ShapeError: shapes in one place differ.
    """
    lists = [list(tensors) for tensors in inputs]
    if not lists:
        raise CommunicationError("Expected tensors of at least one device, but got none")
    if len({len(tensors) for tensors in lists}) > 1:
        raise CommunicationError(
            f"Expected as many tensors from each device, but got {[len(tensors) for tensors in lists]}"
        )
    if buffer_size <= 0:
        raise CommunicationError(f"Expected buffer_size to be positive, but got {buffer_size}")
    sums: list[torch.Tensor | None] = [None] * len(lists[0])
    dense: list[int] = []
    for place, tensors in enumerate(zip(*lists, strict=True)):
        if all(tensor.is_sparse for tensor in tensors):
            sums[place] = reduce_add(tensors, destination)
            continue
        dense.append(place)
        for i, tensor in enumerate(tensors):
            lists[i][place] = tensor.to_dense() if tensor.is_sparse else tensor
            check_alike(lists[i][place], lists[0][place], f"inputs[{i}][{place}]")
    for places in _in_buffers([lists[0][place] for place in dense], dense, buffer_size):
        firsts = [lists[0][place] for place in places]
        orders = [memory_order(first) for first in firsts]
        total = reduce_add(
            [flattened([tensors[place] for place in places], orders) for tensors in lists], destination
        )
        for place, part in zip(places, unflattened(total, firsts, orders), strict=True):
            # Each with a version counter of its own, so that shared memory does not show.
            sums[place] = part.data
    return tuple(result for result in sums if result is not None)


def _in_buffers(tensors: list[torch.Tensor], places: list[int], limit: int) -> Iterable[list[int]]:
    place_of = {id(tensor): place for tensor, place in zip(tensors, places, strict=True)}
    if len(place_of) < len(tensors):  # one tensor in two places
        return [[place] for place in places]
    return [[place_of[id(t)] for t in chunk] for chunk in _take_tensors(tensors, limit)]  # type: ignore[no-untyped-call]


def _sent_together(
    tensors: list[torch.Tensor], target: torch.device, buffer_bytes: int
) -> list[torch.Tensor]:
    sent: dict[int, torch.Tensor] = {}
    places: dict[int, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(id(tensor), []).append(place)
    for chunk in _take_tensors(tensors, buffer_bytes):  # type: ignore[no-untyped-call]
        if chunk[0].is_sparse:
            indices, values = (
                flat.to(target, non_blocking=True)
                for flat in _flatten_sparse_tensors(chunk)  # type: ignore[no-untyped-call]
            )
            parts = _unflatten_sparse_tensors((indices, values), chunk)  # type: ignore[no-untyped-call]
        else:
            orders = [memory_order(tensor) for tensor in chunk]
            parts = unflattened(flattened(chunk, orders).to(target, non_blocking=True), chunk, orders)
        for tensor, part in zip(chunk, parts, strict=True):
            sent[places[id(tensor)].pop()] = part.data
    return [sent[place] for place in range(len(tensors))]


def _scatter_to(
    tensor: torch.Tensor,
    devices: Iterable[Any] | None,
    chunk_sizes: Iterable[int] | None,
    dim: int,
    streams: Iterable[torch.Stream | None] | None,
    out: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if given is not None:
            raise CommunicationError(
                f"'{name}' must not be specified when 'out' is specified, but got {name}={given}"
            )
    sizes = scattered_sizes(tensor, out, dim)
    parts = torch.split_with_sizes(tensor, sizes, dim)
    ordered = streams_of(streams, [result.get_device() for result in out])
    for part, result, stream in zip(parts, out, ordered, strict=True):
        with stream_context(stream) if stream is not None else contextlib.nullcontext():
            result.copy_(part, non_blocking=True)
    return tuple(out)


def _copied(tensor: torch.Tensor, index: int) -> torch.Tensor:
    return tensor.to(torch.device(DEVICE_TYPE, index), non_blocking=True)


def _indices(devices: Iterable[Any]) -> list[int]:
    indices = [_get_device_index(device, optional=True) for device in devices]
    _lazy_init()
    return [_check_index(index) for index in indices]
