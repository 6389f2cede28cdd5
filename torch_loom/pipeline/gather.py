"""Checkpoints of all stages, put together."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_loom.errors import PipelineError
from torch_loom.pipeline.readers import GuardedQueue


class Gather:
    """Puts the parameters of all stages together, checkpoint by checkpoint."""

    def __init__(
        self, num_stages: int, sink: GuardedQueue | None, convert: Callable[[dict[str, torch.Tensor]], Any]
    ) -> None:
        self._convert = convert
        self._lock = threading.Lock()
        self._sink = sink
        self._ended: dict[int, PipelineError] = {}
        if sink is not None:
            sink.add_writer()
        self._waiting: list[queue.SimpleQueue[dict[str, torch.Tensor]]] = [
            queue.SimpleQueue() for _ in range(num_stages)
        ]

    def adder(self, place: int) -> Callable[[dict[str, torch.Tensor]], None] | None:
        """Return what the stage at this place calls with its parameters."""
        if self._sink is None:
            return None

        def add(values: dict[str, torch.Tensor]) -> None:
            with self._lock:
                self._waiting[place].put(values)
                if self._sink is not None and not any(waiting.empty() for waiting in self._waiting):
                    self._sink.put([self._convert(waiting.get()) for waiting in self._waiting])
                self._end_sink()

        return add

    def end(self, place: int, error: PipelineError) -> None:
        """Nothing more comes from this stage: readers get the error once no checkpoint can be completed."""
        with self._lock:
            self._ended[place] = error
            self._end_sink()

    def _end_sink(self) -> None:
        for place, error in self._ended.items():
            if self._waiting[place].empty() and self._sink is not None:
                sink, self._sink = self._sink, None
                sink.end_writer(error)
