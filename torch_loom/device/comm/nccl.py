"""Collectives over one tensor per device, in this process, as in ``torch.cuda.nccl``.

No library is behind them: they are copies and additions, ordered like any others. Each tensor is read and
written on the stream given for its device, or on the current stream.
"""

from __future__ import annotations

import collections.abc
import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from torch_loom.cuda.names.not_applicable import function
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.streams import stream as stream_context
from torch_loom.errors import CommunicationError

__all__ = [
    "all_gather",
    "all_reduce",
    "broadcast",
    "init_rank",
    "is_available",
    "reduce",
    "reduce_scatter",
    "unique_id",
    "version",
]

# NCCL's numbers of its reductions.
SUM, PROD, MAX, MIN, AVG = range(5)

version = function("nccl.version")
unique_id = function("nccl.unique_id")
init_rank = function("nccl.init_rank")

_Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_STEPS: dict[int, _Step] = {
    SUM: torch.Tensor.add_,
    PROD: torch.Tensor.mul_,
    MAX: lambda total, other: torch.maximum(total, other, out=total),
    MIN: lambda total, other: torch.minimum(total, other, out=total),
    AVG: torch.Tensor.add_,
}


def is_available(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether these tensors can take part: dense, contiguous, each on another loom device."""
    seen = set()
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.device.type != DEVICE_TYPE or not tensor.is_contiguous():
            return False
        if tensor.device in seen:
            return False
        seen.add(tensor.device)
    return True


def all_reduce(
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor] | None = None,
    op: int = SUM,
    streams: Sequence[torch.Stream | None] | None = None,
    comms: object = None,
) -> None:
    """Reduce the inputs, and give every output the result.

    Args:
        inputs: one tensor for each device, alike in shape and dtype.
        outputs: where the results go, each on its input's device; the inputs themselves if None.
        op: 0 to 4 for sum, product, maximum, minimum and mean.
        streams: for each device the stream to work on; its current one where None.
        comms: ignored; there are no communicators.

    Raises:
        TypeError: not a collection of tensors.
        CommunicationError: the tensors do not fit together, or there is no such ``op``.
    """
    inputs = _checked(inputs, "inputs")
    outputs = inputs if outputs is None else _checked(outputs, "outputs")
    _check_pairs(inputs, outputs)
    with _working_on(inputs, streams):
        total = _reduced(inputs, 0, op)
        for output in outputs:
            output.copy_(total)


def reduce(
    inputs: Sequence[torch.Tensor],
    output: torch.Tensor | Sequence[torch.Tensor] | None = None,
    root: int = 0,
    op: int = SUM,
    streams: Sequence[torch.Stream | None] | None = None,
    comms: object = None,
    *,
    outputs: Sequence[torch.Tensor] | None = None,
) -> None:
    """Reduce the inputs on one device.

    Args:
        inputs, op, streams, comms: as in :func:`all_reduce`.
        output: where the result goes, on the root's device; the root's input if None.
        root: which of the inputs names the device.
        outputs: deprecated: a list, of which the root's tensor receives the result.

    Raises:
        TypeError, CommunicationError: as :func:`all_reduce`; or there is no such root.
        ValueError: both ``output`` and ``outputs`` are given.
    """
    inputs = _checked(inputs, "inputs")
    _check_root(root, inputs)
    if outputs is not None and output is not None:
        raise ValueError(
            "'output' and 'outputs' must not both be specified; 'outputs' is deprecated in favour of 'output'"
        )
    if outputs is not None or (output is not None and not isinstance(output, torch.Tensor)):
        warnings.warn("A list of outputs is deprecated: give the root's tensor", FutureWarning, stacklevel=2)
        output = (outputs if outputs is not None else output)[root]  # type: ignore[index]
    result = inputs[root] if output is None else output
    assert isinstance(result, torch.Tensor)
    _check_pairs([inputs[root]], [result], "output")
    with _working_on(inputs, streams):
        result.copy_(_reduced(inputs, root, op))


def broadcast(
    inputs: Sequence[torch.Tensor],
    root: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    comms: object = None,
) -> None:
    """Copy the root's tensor into all others. Arguments and errors as in :func:`reduce`."""
    inputs = _checked(inputs, "inputs")
    _check_root(root, inputs)
    with _working_on(inputs, streams):
        for i, tensor in enumerate(inputs):
            if i != root:
                tensor.copy_(inputs[root])


def all_gather(
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    streams: Sequence[torch.Stream | None] | None = None,
    comms: object = None,
) -> None:
    """Give every output all inputs, concatenated.

    Args:
        outputs: for each input, on its device, a tensor of as many elements as all inputs together.

    Other arguments and errors as in :func:`all_reduce`.
    """
    inputs, outputs = _checked(inputs, "inputs"), _checked(outputs, "outputs")
    _check_pairs(inputs, outputs, factor=len(inputs))
    with _working_on(inputs, streams):
        sources = [tensor.view(-1) for tensor in inputs]
        # An input may be its own place in its output, and no other: that copy changes nothing.
        for output in outputs:
            for part, source in zip(output.view(-1).chunk(len(inputs)), sources, strict=False):
                part.copy_(source)


def reduce_scatter(
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    op: int = SUM,
    streams: Sequence[torch.Stream | None] | None = None,
    comms: object = None,
) -> None:
    """Reduce the inputs, and give each output its part of the result.

    Args:
        outputs: for each input, on its device, a tensor of that input's elements divided by the number of
            devices.

    Other arguments and errors as in :func:`all_reduce`.
    """
    inputs, outputs = _checked(inputs, "inputs"), _checked(outputs, "outputs")
    _check_pairs(inputs, outputs, divisor=len(inputs))
    with _working_on(inputs, streams):
        total = _reduced(inputs, 0, op).view(-1)
        for output, part in zip(outputs, total.chunk(len(outputs)), strict=False):
            output.view(-1).copy_(part)


def _checked(tensors: object, name: str) -> list[torch.Tensor]:
    if not isinstance(tensors, collections.abc.Collection) or isinstance(tensors, torch.Tensor):
        raise TypeError(f"{name} should be a collection of tensors, but got {type(tensors).__name__}")
    checked = list(tensors)
    if not checked:
        raise CommunicationError(f"Expected at least one tensor in {name}, but got none")
    for i, tensor in enumerate(checked):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} should be a collection of tensors, but {name}[{i}] is {tensor!r}")
        if not is_available([tensor]):
            raise CommunicationError(
                f"Expected {name}[{i}] to be a contiguous dense tensor on a {DEVICE_TYPE} device, but it "
                f"is a {tensor.layout} one with strides {_strides(tensor)} on {tensor.device}"
            )
        first = checked[0]
        if tensor.dtype != first.dtype or tensor.numel() != first.numel():
            raise CommunicationError(
                f"Expected {name} to be alike, but {name}[{i}] has {tensor.numel()} elements of "
                f"{tensor.dtype} and {name}[0] has {first.numel()} of {first.dtype}"
            )
    if not is_available(checked):
        devices = [str(tensor.device) for tensor in checked]
        raise CommunicationError(f"Expected each of {name} on another device, but they are on {devices}")
    return checked


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    return tensor.stride() if tensor.layout == torch.strided else None


def _check_pairs(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    name: str = "outputs",
    *,
    factor: int = 1,
    divisor: int = 1,
) -> None:
    if len(inputs) != len(outputs):
        raise CommunicationError(f"Got {len(inputs)} inputs but {len(outputs)} {name}")
    for i, (tensor, output) in enumerate(zip(inputs, outputs, strict=True)):
        _checked([output], name)
        if output.device != tensor.device or output.dtype != tensor.dtype:
            raise CommunicationError(
                f"Expected {name}[{i}] to be {tensor.dtype} on {tensor.device} as its input, but it is "
                f"{output.dtype} on {output.device}"
            )
        if output.numel() * divisor != tensor.numel() * factor:
            share = f"{factor} times as many" if factor > 1 else f"1/{divisor} as many"
            raise CommunicationError(
                f"Expected {name}[{i}] to have {share if factor * divisor > 1 else 'as many'} elements as "
                f"its input, which has {tensor.numel()}, but it has {output.numel()}"
            )


def _check_root(root: int, tensors: list[torch.Tensor]) -> None:
    if not 0 <= root < len(tensors):
        raise CommunicationError(f"Expected root to be one of 0…{len(tensors) - 1}, but got {root}")


def _reduced(inputs: list[torch.Tensor], root: int, op: int) -> torch.Tensor:
    """The reduction on the root's device, in the order of the inputs whichever the root is."""
    step = _STEPS.get(op)
    if step is None:
        raise CommunicationError(
            f"There is no reduction {op!r}: 0 to 4 are sum, product, maximum, minimum and mean"
        )
    home = inputs[root].device
    total = inputs[0].detach().to(home, copy=True)
    for tensor in inputs[1:]:
        step(total, tensor.detach().to(home))
    if op == AVG:
        whole = None if total.is_floating_point() or total.is_complex() else "trunc"
        total.div_(len(inputs), rounding_mode=whole)
    return total


@contextlib.contextmanager
def _working_on(tensors: list[torch.Tensor], streams: Sequence[torch.Stream | None] | None) -> Iterator[None]:
    """Makes the given streams current on all devices at once: a copy is ordered on both of its ends."""
    given = list(streams or ())
    if given and len(given) != len(tensors):
        raise CommunicationError(f"Got {len(tensors)} tensors but {len(given)} streams")
    with contextlib.ExitStack() as stack, torch.no_grad():
        for tensor, stream in zip(tensors, given, strict=False):
            if stream is None:
                continue
            if stream.device != tensor.device:
                raise CommunicationError(
                    f"Expected a stream of {tensor.device}, but got one of {stream.device}"
                )
            stack.enter_context(stream_context(stream))
        yield
