"""The commands of a stage's worker."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.schedule import ScheduleName

_SLICE_SECONDS = 1.0


class CommandType(enum.Enum):
    """The commands of a stage."""

    QUIT = 1
    RUN_FORWARD = 2
    RUN_BACKWARD = 3
    RUN_GENERATE = 4
    RUN_OPTIMIZER = 5
    RUN_SCHEDULERS = 6
    RUN_TRAINING = 7
    GET_PARAMETER_CHECKPOINT = 8
    GET_PARAMETER_GRADIENTS = 9
    UPDATE_DEVICE_PARAMETERS = 10
    SYNC = 11
    CALL = 12


class Reply:
    """What a worker answers, once; waiting ends with the answer or with the pipeline."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._changed = threading.Condition()
        self._lifeline = lifeline
        self._done = False
        self._value: Any = None
        lifeline.watch(self.wake)

    def set(self, value: Any) -> None:
        """Answer."""
        with self._changed:
            self._done, self._value = True, value
            self._changed.notify_all()

    def wait(self) -> Any:
        """Return the answer.

        Raises:
            StageError: the pipeline failed before it came.
            PipelineStoppedError: it was shut down.
        """
        try:
            with self._changed:
                while not self._done:
                    self._lifeline.check()
                    if not self._changed.wait(_SLICE_SECONDS):
                        self._lifeline.probe()
        except KeyboardInterrupt:
            self._lifeline.stop()
            raise
        self._lifeline_failure()
        return self._value

    def _lifeline_failure(self) -> None:
        if self._lifeline.error is not None:
            self._lifeline.check()

    def wake(self) -> None:
        """Make the waiting thread look again."""
        with self._changed:
            self._changed.notify_all()


@dataclass
class Command:
    """One command; what is not of its type stays at its default."""

    type: CommandType
    count: int = 1
    """Micro-batches; 0 runs until ``cancel`` is set."""
    training: bool = False
    zero_grad: bool = False
    checkpoint: bool = False
    parameters: Any = None
    schedule: ScheduleName = "all_forward"
    epochs: int = 1
    steps: int = 1
    accumulation_steps: int = 1
    checkpoint_interval: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)
    cancel: threading.Event | None = None
    reply: Reply | None = None
    on_output: Callable[..., None] | None = None
    """Takes the outputs of this run, in place of the queue that the pipeline was started with."""
