"""The stream sanitizer with the names of ``torch.cuda._sanitizer``: finds races between streams.

It reads the tape, which reports every command of every device in the issuing thread, before it is submitted.
Two commands race when they use the same bytes on two streams, at least one writes, and no event, host
synchronisation or shared stream puts one before the other. docs/races.md has examples.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from torch_loom._C import TapeReader
from torch_loom.device._explain.op_tags import Operand as TypedOperand
from torch_loom.device.sanitizer.arguments import TK, ArgumentHandler, TVa, TVb, zip_arguments, zip_by_key
from torch_loom.device.sanitizer.clocks import EventId, SeqNum, StreamId, StreamSynchronizations
from torch_loom.device.sanitizer.cuda_handler import EventHandler
from torch_loom.device.sanitizer.handler import TapeHandler
from torch_loom.device.sanitizer.history import TensorInfo
from torch_loom.device.sanitizer.reports import (
    Access,
    AccessType,
    CUDASanitizerErrors,
    MissingRecordStreamError,
    SynchronizationError,
    UnsynchronizedAccessError,
    UseAfterFreeError,
)

__all__ = [
    "TK",
    "Access",
    "AccessType",
    "ArgumentHandler",
    "CUDASanitizer",
    "CUDASanitizerDispatchMode",
    "CUDASanitizerErrors",
    "DataPtr",
    "EventHandler",
    "EventId",
    "LoomSanitizer",
    "LoomSanitizerDispatchMode",
    "LoomSanitizerErrors",
    "MissingRecordStreamError",
    "SeqNum",
    "StreamId",
    "StreamSynchronizations",
    "SynchronizationError",
    "TVa",
    "TVb",
    "TensorInfo",
    "UnsynchronizedAccessError",
    "UseAfterFreeError",
    "cuda_sanitizer",
    "enable_cuda_sanitizer",
    "enable_loom_sanitizer",
    "loom_sanitizer",
    "zip_arguments",
    "zip_by_key",
]

DataPtr = int


class CUDASanitizerDispatchMode:
    """Context manager within which races are reported, in every thread.

    It keeps CUDA's name; it reads the tape and intercepts no dispatch.

    Attributes:
        event_handler: what it knows of streams and memory; anew with each entry.
    """

    def __init__(self) -> None:
        self.event_handler = TapeHandler()
        # Commands come from any thread, and Python may change threads while a command is looked at.
        self._lock = threading.Lock()
        self._reader = TapeReader(self._read, self._read_end, with_dtypes=True)

    def __enter__(self) -> CUDASanitizerDispatchMode:
        self.event_handler = TapeHandler()
        self._reader.take_notes()
        self._reader.attach()
        return self

    def __exit__(self, *exception: object) -> None:
        self._reader.detach()

    def _read(self, *launch: Any) -> None:
        __tracebackhide__ = True  # pytest then shows the program's line last
        with self._lock:
            self._take_notes()
            errors = self.event_handler.handle_launch(*launch)
        self._report(errors)

    def _read_end(
        self,
        device: int,
        stream: int,
        operator: str,
        shape_class: str | None,
        inputs: tuple[TypedOperand, ...],
        outputs: tuple[TypedOperand, ...],
        attributes: dict[str, Any],
        is_captured: bool,
        has_failed: bool,
    ) -> None:
        __tracebackhide__ = True
        with self._lock:
            self._take_notes()
            errors = self.event_handler.handle_kernel_end(device, stream, outputs, is_captured, has_failed)
        self._report(errors)

    def _take_notes(self) -> None:
        for note in self._reader.take_notes():
            self.event_handler.handle_note(*note)

    @staticmethod
    def _report(errors: list[SynchronizationError]) -> None:
        __tracebackhide__ = True
        if errors:
            for error in errors:
                print(error, file=sys.stderr)
            raise CUDASanitizerErrors(errors)


class CUDASanitizer:
    """Switches the sanitizer on and off.

    Attributes:
        dispatch: what reads the tape.
        enabled: whether it does.
    """

    def __init__(self) -> None:
        self.dispatch = CUDASanitizerDispatchMode()
        self.enabled = False

    def enable(self) -> None:
        """Report races from now on. Does nothing when that is so already."""
        if not self.enabled:
            self.dispatch.__enter__()
            self.enabled = True

    def disable(self) -> None:
        """Report no races any more, and forget all that was learned. Does nothing when it is disabled."""
        if self.enabled:
            self.enabled = False
            self.dispatch.__exit__()
            self.dispatch.event_handler = TapeHandler()


def enable_cuda_sanitizer() -> None:
    """Enable the sanitizer: see :func:`torch_loom.device.sanitizer.enable`."""
    cuda_sanitizer.enable()


cuda_sanitizer = CUDASanitizer()

LoomSanitizer = CUDASanitizer
LoomSanitizerDispatchMode = CUDASanitizerDispatchMode
LoomSanitizerErrors = CUDASanitizerErrors
enable_loom_sanitizer = enable_cuda_sanitizer
loom_sanitizer = cuda_sanitizer
