"""Memory history and snapshots in PyTorch's own format, with the signatures of ``torch.cuda.memory``."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from torch._utils import _augment_memory_snapshot_stack_traces
from torch.types import Device

from torch_loom import _C
from torch_loom.config.files import whole_file
from torch_loom.device._core.device_index import _existing_index
from torch_loom.device._core.first_use import _lazy_init, is_initialized

__all__ = [
    "memory_snapshot",
]

_ENABLED = (None, "state", "all")
_CONTEXTS = (None, "state", "alloc", "all")
_STACKS = ("python", "all")


def _check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Record where memory was allocated and freed, for :func:`_snapshot`. All devices record.

    Args:
        enabled: None: stop, and forget the history. ``"state"``: remember where live blocks came from, and of
            the history the last entry. ``"all"``: keep a history of allocations and frees as well. ``True``
            and ``False`` mean ``"all"`` and None.
        context: which stacks are kept: none (None), those of live blocks (``"state"``), those of allocations
            in the history as well (``"alloc"``), those of frees as well (``"all"``).
        stacks: ``"python"`` for Python's frames, ``"all"`` for those of C++ as well, which takes long to
            resolve.
        max_entries: how many entries each device's history keeps; the oldest go first.
        device: checked and otherwise not used, as in CUDA.
        clear_history: forget what was recorded so far.
        compile_context: accepted for CUDA's sake; nothing is recorded.
        global_record_annotations: accepted for CUDA's sake; nothing is recorded.
        skip_actions: which entries are left out of the history: ``"alloc"``, ``"free_requested"``,
            ``"free_completed"``, ``"segment_alloc"``, ``"segment_free"``, ``"segment_map"``,
            ``"segment_unmap"``, ``"snapshot"``, ``"oom"``.

    Raises:
        ValueError: an argument has none of these values.
        TypeError: ``max_entries`` is no int.
        InvalidDeviceError: there is no such device.
    """
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    _check_choice("enabled", enabled, _ENABLED)
    _check_choice("context", context, _CONTEXTS)
    _check_choice("stacks", stacks, _STACKS)
    if not isinstance(max_entries, int):
        raise TypeError(f"max_entries must be an int, got {type(max_entries).__name__} {max_entries!r}")
    if max_entries < 0:
        raise ValueError(f"max_entries must be 0 or more, got {max_entries}")
    actions = [] if skip_actions is None else list(skip_actions)
    for action in actions:
        _check_choice("each of skip_actions", action, tuple(_C.memory_trace_actions))
    _lazy_init()
    if device is not None:
        _existing_index(device)
    # As in CUDA, where the last entry is kept of every history.
    limit = 1 if enabled == "state" else min(max_entries, sys.maxsize)
    _C.record_memory_history(enabled, context, stacks, limit, clear_history, actions)


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Return the state of the allocators of all devices, in the format of ``torch.cuda.memory._snapshot``.

    ``segments`` with their ``blocks``; ``device_traces``, per device the entries recorded since
    :func:`_record_memory_history`; ``allocator_settings``; ``external_annotations`` (none). Addresses and
    sizes in bytes, times in microseconds since 1970. ``torch.cuda._memory_viz`` and PyTorch's memory viewer
    read it.

    Args:
        device: checked and otherwise not used, as in CUDA.
        augment_with_fx_traces: add to frames in generated code which line of the model they come from.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    _lazy_init()
    if device is not None:
        _existing_index(device)
    snapshot = _C.memory_snapshot((0, 0), True)
    if augment_with_fx_traces:
        snapshot = _augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type, assignment]
    return snapshot


def _dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write :func:`_snapshot` to a file that PyTorch's memory viewer (pytorch.org/memory_viz) opens.

    A file appears whole or not at all: it is written under another name first. Links are followed; what is
    no file (a pipe, a device) is written to.

    Raises:
        OSError: the file cannot be written.
    """
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with whole_file(filename) as unfinished, unfinished.open("wb") as file:
        pickle.dump(snapshot, file)


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Return the segments of all devices' allocators, as in :func:`_snapshot`.

    Args:
        mempool_id: only those of this private pool; all if None.
        include_traces: accepted for CUDA's sake: segments have no history.
    """
    if not is_initialized():
        return []
    segments: list[dict[str, Any]] = _C.memory_snapshot(mempool_id or (0, 0), False)["segments"]
    return segments


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Return the frames in which the live block that starts at ``data_ptr`` was allocated.

    None if that was not recorded (:func:`_record_memory_history`), or no live block starts there.
    """
    return _C.allocation_traceback(data_ptr) if is_initialized() else None


def _set_memory_metadata(metadata: str) -> None:
    """Attach a text to all entries of the history from now on (``user_metadata``); none if empty."""
    _lazy_init()
    _C.set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """Return the text that :func:`_set_memory_metadata` set."""
    return _C.memory_metadata() if is_initialized() else ""
