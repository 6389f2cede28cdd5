"""Runs a function of device tensors by a captured graph, once it has been seen to be called alike twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom import config

__all__ = ["Replayer"]

# One more set of shapes than this is run without a graph, so that changing shapes do not fill the memory.
MAX_GRAPHS = 8


class Replayer:
    """A function of tensors on one device, replayed from a graph where it is called with like inputs again.

    Inputs are copied to the graph's own memory and results out of it, so that every call returns tensors of
    its own.

    Args:
        function: takes tensors and numbers, returns a sequence of tensors, numbers and None; pure: it
            changes no input.
        static: positions of inputs that are parameters. They are read where they are; the graph is captured
            again where one has moved.

    Attributes:
        refusal: why nothing is captured; empty while nothing speaks against it.
    """

    def __init__(self, function: Callable[..., Sequence[Any]], static: Sequence[int] = ()) -> None:
        self._function = function
        self._static = frozenset(static)
        self._seen: set[tuple[Any, ...]] = set()
        self._graphs: dict[tuple[Any, ...], _Captured] = {}
        self._lock = threading.Lock()
        self._module: Any = getattr(torch, config.device_name())
        self.refusal = ""

    @property
    def num_graphs(self) -> int:
        """How many graphs have been captured."""
        return len(self._graphs)

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """Run it on the current stream."""
        if self.refusal or self._module.is_current_stream_capturing():
            return self._function(*inputs)
        with self._lock:
            key = tuple(self._key(i, value) for i, value in enumerate(inputs))
            captured = self._graphs.get(key)
            if captured is None and key in self._seen and len(self._graphs) < MAX_GRAPHS:
                captured = self._capture(key, inputs)
            if captured is not None:
                return captured.run(inputs)
            self._seen.add(key)
        return self._function(*inputs)

    def _key(self, position: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        place = value.data_ptr() if position in self._static else None
        return value.dtype, value.device, tuple(value.shape), value.stride(), place

    def _capture(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> _Captured | None:
        if any(isinstance(one, torch.Tensor) and one.device.type != config.device_name() for one in inputs):
            self.refusal = "it reads tensors of the host"
            return None
        try:
            captured = _Captured(self._function, self._static, inputs, self._module)
        except (RuntimeError, NotImplementedError) as error:
            self.refusal = str(error).partition("\n")[0]
            return None
        self._graphs[key] = captured
        return captured


class _Captured:
    """One graph with the memory that it reads and writes."""

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        static: frozenset[int],
        inputs: Sequence[Any],
        module: Any,
    ) -> None:
        self._module = module
        self._inputs = [_own(value, i in static) for i, value in enumerate(inputs)]
        self._moved = [
            i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and i not in static
        ]
        self._graph = module.LoomGraph()
        module.synchronize()
        with module.graph(self._graph):
            self._outputs = list(function(*self._inputs))
        self._stream: Any = module.current_stream()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        stream = self._module.current_stream()
        if stream != self._stream:
            # The graph's memory may still be in use there.
            stream.wait_stream(self._stream)
            self._stream = stream
        for i in self._moved:
            self._inputs[i].copy_(inputs[i])
        self._graph.replay()
        return [value.clone() if isinstance(value, torch.Tensor) else value for value in self._outputs]


def _own(value: Any, is_static: bool) -> Any:
    if not isinstance(value, torch.Tensor) or is_static:
        return value
    own = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return own.copy_(value)
