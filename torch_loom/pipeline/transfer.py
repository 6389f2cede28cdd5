"""Tensors on their way from one stage to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Tensors = tuple[torch.Tensor | None, ...]


@dataclass(frozen=True)
class Parcel:
    """Tensors of one micro-batch, and the events that mark when their devices have made them."""

    tensors: Tensors
    ready: tuple[torch.Event, ...]


def parcel(tensors: Sequence[torch.Tensor | None]) -> Parcel:
    """Wrap tensors that the current streams of this thread have issued; nothing is copied or waited for."""
    devices = {tensor.device for tensor in tensors if tensor is not None and tensor.device.type != "cpu"}
    events = []
    for device in sorted(devices, key=str):
        event = torch.Event(device)
        event.record(torch.accelerator.current_stream(device))
        events.append(event)
    return Parcel(tuple(tensors), tuple(events))


def on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on a device: itself where it is there, without a call that hands over Python's lock."""
    return tensor if tensor.device == device else tensor.to(device)


class Receiver:
    """Takes parcels in on one device, on a stream of its own beside the stage's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: torch.Stream | None = None

    def open(self, received: Parcel) -> Tensors:
        """Return the tensors on this device. The current stream waits for the copies, not the host."""
        here = self._device
        if here.type == "cpu":
            # The copy to the host waits for the stream that it is issued on: make that stream wait for the
            # makers.
            for event in received.ready:
                torch.accelerator.current_stream(event.device).wait_event(event)
            return tuple(t if t is None else on(here, t) for t in received.tensors)
        if all(t is None or t.device in (here, _CPU) for t in received.tensors):
            current = torch.accelerator.current_stream(here)
            for event in received.ready:
                current.wait_event(event)
            return tuple(t if t is None else on(here, t) for t in received.tensors)
        return self._copy_beside(received)

    def _copy_beside(self, received: Parcel) -> Tensors:
        current = torch.accelerator.current_stream(self._device)
        if self._side is None:
            self._side = torch.Stream(self._device)
        moved: list[torch.Tensor | None] = []
        with self._side:
            for event in received.ready:
                self._side.wait_event(event)
            for tensor in received.tensors:
                moved.append(None if tensor is None else tensor.to(self._device, non_blocking=True))
        current.wait_stream(self._side)
        for before, after in zip(received.tensors, moved, strict=True):
            if after is not None and after is not before:
                after.record_stream(current)
                if before is not None and before.device.type != "cpu":
                    before.record_stream(self._side)
        return tuple(moved)


_CPU = torch.device("cpu")


def flatten_outputs(outputs: object) -> tuple[torch.Tensor, ...]:
    """Return the tensors of what a module returned, in order: a tensor, or tuples, lists, dicts of them.

    None is left out; so is what a mapping or sequence holds beside tensors.

    Raises:
        TypeError: there is no tensor in it.
    """
    found: list[torch.Tensor] = []
    _collect(outputs, found)
    if not found:
        raise TypeError(
            f"a module of a pipeline returned {type(outputs).__name__} without a tensor: return a tensor, or "
            "a tuple, list or dict of tensors"
        )
    return tuple(found)


def _collect(value: object, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
