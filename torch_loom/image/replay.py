"""Runs a function of device tensors by a captured graph, once it has been seen to be called alike twice."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom import _C, config

# Further sets of shapes run without a graph, so that changing shapes do not fill the memory.
MAX_GRAPHS = 8
# Sets of inputs that are remembered as seen once.
MAX_SEEN = 1024


class Replayer:
    """A function of tensors on one device, replayed from a graph where it is called with like inputs again.

    Inputs are copied to the graph's own memory and results out of it, so that every call returns tensors of
    its own. A result that is an input is that input, and one in the memory of a static input stays there.

    Args:
        function: takes tensors and numbers, returns a sequence of tensors, numbers and None; it changes no
            inputs except static inputs.
        static: positions of inputs that are parameters. They are read where they are; the graph is captured
            again where an input has moved.
        device: index of the device of its tensors; that of the inputs if None.

    Attributes:
        refusal: why nothing is captured; empty while nothing speaks against it.
    """

    max_graphs = MAX_GRAPHS

    def __init__(
        self, function: Callable[..., Sequence[Any]], static: Sequence[int] = (), device: int | None = None
    ) -> None:
        self._function = function
        self._static = frozenset(static)
        self._device = device
        self._seen: set[tuple[Any, ...]] = set()
        self._too_large: set[tuple[Any, ...]] = set()  # whose capture ran out of memory
        self._graphs: dict[tuple[Any, ...], _C.CapturedCall] = {}
        self._last: _C.CapturedCall | None = None  # tried first, without a key
        self._lock = threading.Lock()
        self._module: Any = getattr(torch, config.device_name())
        self.refusal = ""

    @property
    def num_graphs(self) -> int:
        """How many graphs have been captured."""
        return len(self._graphs)

    def clear(self) -> None:
        """Free the captured graphs with their memory; they are captured again where calls repeat."""
        with self._lock:
            self._graphs.clear()
            self._too_large.clear()
            self._last = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """Run it on the current stream."""
        return self.call(inputs)

    def call(self, inputs: list[Any] | tuple[Any, ...]) -> Sequence[Any]:
        """Run it on the current stream; the inputs as a list or a tuple."""
        last = self._last
        results = last.run(inputs) if last is not None else None
        if results is None:
            results = self._found(inputs)
        return self._function(*inputs) if results is None else results

    def _found(self, inputs: Sequence[Any]) -> list[Any] | None:
        """Run the graph for these inputs, capturing it if they have come before; None: there is none."""
        if self._module.is_current_stream_capturing():
            return None
        # In a dry run the same indices are other devices.
        key = (_C.world(), *(self._key(i, value) for i, value in enumerate(inputs)))
        with self._lock:
            captured = self._graphs.get(key)
            is_wanted = key in self._seen and key not in self._too_large and not self.refusal
            if captured is None and is_wanted and len(self._graphs) < self.max_graphs:
                captured = self._capture(key, inputs)
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
                self._too_large.clear()
            self._seen.add(key)
            if captured is None:
                return None
            self._last = captured
        return captured.run(tuple(inputs))

    def _key(self, position: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return type(value), value
        place = value.data_ptr() if position in self._static else None
        return value.dtype, value.device, tuple(value.shape), value.stride(), place

    def _capture(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> _C.CapturedCall | None:
        devices = {each.device for each in inputs if isinstance(each, torch.Tensor)}
        if any(device.type != config.device_name() for device in devices):
            self.refusal = "it reads tensors of the host"
        elif len(devices) > 1:
            self.refusal = "it reads tensors of several devices"
        if self.refusal:
            return None
        given = next((device.index for device in devices), self._module.current_device())
        device = given if self._device is None else self._device
        try:
            are_static = [i in self._static for i in range(len(inputs))]
            own = [_own(value, is_static) for value, is_static in zip(inputs, are_static, strict=True)]
            graph = self._module.LoomGraph()
            capture = functools.partial(self._module.graph, capture_error_mode="thread_local")
            with self._module.device(device), capture(graph):
                results = list(self._function(*own))
            if any(isinstance(result, torch.Tensor) and result.device.index != device for result in results):
                self.refusal = "it computes on several devices"
                return None
            captured = _C.CapturedCall(graph, inputs, own, are_static, results)
        except torch.OutOfMemoryError:
            self._too_large.add(key)  # others may fit
            return None
        except (RuntimeError, NotImplementedError) as error:
            self.refusal = str(error).partition("\n")[0]
            return None
        self._graphs[key] = captured
        return captured


def _own(value: Any, is_static: bool) -> Any:
    """What a graph reads in the place of an input: memory of its own, which calls copy the input to."""
    if not isinstance(value, torch.Tensor) or is_static:
        return value
    own = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    _without_repeats(own).copy_(_without_repeats(value))
    return own


def _without_repeats(value: torch.Tensor) -> torch.Tensor:
    """Each element once: a copy may not write to an expanded dimension."""
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value
