"""Names for the work of a captured graph, as in ``torch.cuda._graph_annotations``.

A kernel or copy that is captured has an identity: the number of its capture in the upper 32 bits, its place
in it in the lower ones. :func:`get_kernel_annotations` says what was written about each. A graph keeps its
identity after its capture, so that :func:`remap_to_exec_graph` finds nothing to rename.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from torch_loom import _C
from torch_loom.cuda.names.not_applicable import functions
from torch_loom.device.graphs.capture import LoomGraph, is_current_stream_capturing
from torch_loom.device.streams import current_stream
from torch_loom.device.streams import stream as stream_context

__all__ = [
    "clear_kernel_annotations",
    "disable_annotations",
    "enable_annotations",
    "get_kernel_annotations",
    "get_stream_for_pg",
    "mark_kernels",
    "mark_stream",
    "remap_to_exec_graph",
    "resolve_pending_annotations",
]

logger = logging.getLogger(__name__)

Annotation = str | dict[str, Any]

_kernel_annotations: defaultdict[int, list[Any]] = defaultdict(list)
# Annotations of scopes that have ended, inner scopes first, and what was captured in each.
_pending_scopes: list[tuple[Any, list[int]]] = []
# Above the ids of streams, so that a trace shows lanes of their own.
_stream_id_counter = 60
_stream_id_map: dict[int | str, int] = {}
# The capture whose annotations were resolved last.
_last_capture_graph_id: int | None = None

# What PyTorch's module reads through the package cuda.bindings, which is not asked.
_HAS_CUDA_BINDINGS = False
_cuda_runtime = None
_ANNOTATABLE_TYPES: set[Any] | None = None
_tools_id_available: bool | None = True
_CaptureState = tuple[Any, list[Any]]
_ExistingDirectDependents = dict[int, set[int]]
globals().update(functions("_graph_annotations"))


class _CapturedCommands:
    """Numbers the kernels and copies that are captured, and adds them to the scopes of their thread."""

    def __init__(self) -> None:
        self.is_enabled = False
        self._reader = _C.TapeReader(self._read)
        self._capture = 0
        self._places = itertools.count()
        self._scopes = threading.local()

    def enable(self) -> None:
        if not self.is_enabled:
            self._reader.attach()
            self.is_enabled = True

    def disable(self) -> None:
        if self.is_enabled:
            self.is_enabled = False
            self._reader.detach()

    def scopes(self) -> list[list[int]]:
        if not hasattr(self._scopes, "stack"):
            self._scopes.stack = []
        stack: list[list[int]] = self._scopes.stack
        return stack

    def _read(self, kind: int, *command: Any) -> None:
        self._reader.take_notes()
        is_captured = command[6]
        if not is_captured or kind not in (_C.TapeReader.KERNEL, _C.TapeReader.COPY):
            return
        capture = LoomGraph.captures_begun
        if capture != self._capture:
            self._capture, self._places = capture, itertools.count()
        identity = capture << 32 | next(self._places)
        for scope in self.scopes():
            scope.append(identity)


_commands = _CapturedCommands()


def enable_annotations() -> None:
    """Let :func:`mark_kernels` and :func:`mark_stream` annotate, and number what is captured from now on."""
    _commands.enable()


def disable_annotations() -> None:
    """Let :func:`mark_kernels` and :func:`mark_stream` do nothing, as at first."""
    _commands.disable()


@contextlib.contextmanager
def mark_kernels(annotation: Annotation) -> Iterator[None]:
    """Annotate the kernels and copies that this thread issues inside of it and that a graph captures.

    Does nothing unless annotations are enabled and the current stream is being captured.

    Args:
        annotation: a dict; a text is ``{"str": text}``. In nested scopes the inner keys win.
    """
    if not _commands.is_enabled or not is_current_stream_capturing():
        yield
        return
    scopes = _commands.scopes()
    found: list[int] = []
    scopes.append(found)
    try:
        yield
    finally:
        scopes.pop()
    if found:
        _pending_scopes.append(({"str": annotation} if isinstance(annotation, str) else annotation, found))


@contextlib.contextmanager
def mark_stream(stream: torch.Stream, annotation: Annotation) -> Iterator[None]:
    """As :func:`mark_kernels`, on a stream; its id is ``annotation["stream"]`` unless it is current.

    Without annotations enabled it only makes the stream current.
    """
    if _commands.is_enabled and stream != current_stream():
        named: dict[str, Any] = {"str": annotation} if isinstance(annotation, str) else annotation
        named["stream"] = _get_stream_id(stream)
        annotation = named
    with mark_kernels(annotation), stream_context(stream):
        yield


def resolve_pending_annotations() -> None:
    """Write what the scopes that have ended say to the map of :func:`get_kernel_annotations`."""
    global _last_capture_graph_id
    by_command: defaultdict[int, list[Any]] = defaultdict(list)
    for annotation, identities in _pending_scopes:
        for identity in identities:
            by_command[identity].append(annotation)
    _pending_scopes.clear()
    if by_command:
        _last_capture_graph_id = next(iter(by_command)) >> 32
    for identity, said in by_command.items():
        if len(said) == 1:
            _kernel_annotations[identity].append(said[0])
            continue
        merged: dict[str, Any] = {}
        for annotation in reversed(said):
            merged.update(annotation if isinstance(annotation, dict) else {"name": annotation})
        _kernel_annotations[identity].append(merged)


def remap_to_exec_graph(torch_cuda_graph: LoomGraph) -> None:
    """Rename the commands of a graph as its replays call them: that is what they are called already.

    Raises:
        TypeError: it is no graph.
    """
    if not isinstance(torch_cuda_graph, LoomGraph):
        raise TypeError(f"Expected a LoomGraph, but got {type(torch_cuda_graph).__name__}")


def get_kernel_annotations() -> dict[int, list[Any]]:
    """Return the annotations, by the identities of the commands; not a copy."""
    return _kernel_annotations


def clear_kernel_annotations() -> None:
    """Forget all annotations, those not resolved included."""
    _kernel_annotations.clear()
    _pending_scopes.clear()


def get_stream_for_pg(pg_key: str) -> int:
    """Return a number for a process group: always the same, and no stream's."""
    return _id_for(pg_key)


def _get_stream_id(stream: torch.Stream) -> int:
    """Return a number for a stream: always the same, and no process group's."""
    return _id_for(stream.native_handle)  # type: ignore[attr-defined]


def _id_for(key: int | str) -> int:
    global _stream_id_counter
    if key not in _stream_id_map:
        _stream_id_map[key] = _stream_id_counter
        _stream_id_counter += 1
    return _stream_id_map[key]


def _probe_tools_id() -> bool:
    """Return whether commands of a graph have identities: they do."""
    return True


def _is_tools_id_unavailable() -> bool:
    """Return whether commands of a graph have none."""
    return not _probe_tools_id()


def __getattr__(name: str) -> bool:
    # A variable of PyTorch's module, which its functions set.
    if name == "_annotations_enabled":
        return _commands.is_enabled
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
