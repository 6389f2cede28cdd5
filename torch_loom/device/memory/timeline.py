"""A profile's memory timeline as a memory snapshot, which the pictures of ``torch.cuda._memory_viz`` show."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device._core.first_use import _device_count

__all__: list[str] = []

_Entry = dict[str, Any]


class _Place:
    """What a profile saw of one device's memory, or of the host's."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.trace: list[_Entry] = []
        self.live: dict[object, _Entry] = {}
        self._first: int | None = None
        self._end = 0

    def allocate(self, key: object, entry: _Entry, *, is_traced: bool) -> None:
        self.live[key] = entry
        address = entry["addr"]
        self._first = address if self._first is None else min(self._first, address)
        self._end = max(self._end, address + entry["size"])
        if is_traced:
            self.trace.append({"action": "alloc", **entry})

    def free(self, key: object) -> None:
        entry = {name: value for name, value in self.live.pop(key).items() if name != "category"}
        self.trace += [{"action": action, **entry} for action in ("free_requested", "free_completed")]

    def segment(self) -> _Entry | None:
        """Return all that it saw as one segment, with what is live at the end; None if nothing is."""
        if self._first is None or not self.live:
            return None
        blocks: list[_Entry] = []
        position = self._first
        for entry in sorted(self.live.values(), key=lambda entry: int(entry["addr"])):
            if position < entry["addr"]:
                blocks.append({"size": entry["addr"] - position, "state": "inactive"})
            block = {"size": entry["size"], "requested_size": entry["size"], "frames": entry["frames"]}
            blocks.append({**block, "state": "active_allocated"})
            position = entry["addr"] + entry["size"]
        if position < self._end:
            blocks.append({"size": self._end - position, "state": "inactive"})
        total = {"address": self._first, "total_size": self._end - self._first}
        return {"device": self.index, "stream": 0, **total, "blocks": blocks}


def profile_to_snapshot(profile: Any) -> dict[str, Any]:
    """Return the snapshot that a profile's memory timeline amounts to. The last device is the host.

    Args:
        profile: a ``torch.profiler.profile`` with ``profile_memory``, ``record_shapes`` and ``with_stack``
            that has ended.

    Raises:
        ValueError: it was made without one of them.
    """
    from torch.profiler._memory_profiler import Action, TensorKey

    timeline = profile._memory_profile()
    stacks = _allocation_stacks(timeline)
    places = [_Place(index) for index in range(_device_count() + 1)]
    for _, action, (tensor, version), size in timeline.timeline:
        if not isinstance(tensor, TensorKey):
            continue
        place = places[tensor.device.index if tensor.device.type == DEVICE_TYPE else -1]
        if action in (Action.DESTROY, Action.INCREMENT_VERSION):
            place.free((tensor, version))
        if action == Action.DESTROY:
            continue
        version += action == Action.INCREMENT_VERSION
        category = timeline._categories.get(tensor, version)
        entry = {
            "addr": tensor.storage.ptr,
            "size": size,
            "stream": 0,
            "frames": stacks.get(tensor, []),
            "category": "unknown" if category is None else category.name.lower(),
        }
        place.allocate((tensor, version), entry, is_traced=action != Action.PREEXISTING)
    segments = [segment for place in places if (segment := place.segment()) is not None]
    return {"device_traces": [place.trace for place in places], "segments": segments}


def _allocation_stacks(timeline: Any) -> dict[Any, list[_Entry]]:
    """Return the Python calls in which each tensor was allocated, the innermost first."""
    from torch.profiler._memory_profiler import TensorKey

    kinds = torch._C._profiler._EventType
    stacks: dict[Any, list[_Entry]] = {}
    for event in timeline._op_tree.sorted_nodes:
        if event.tag != kinds.Allocation or event.extra_fields.alloc_size <= 0:
            continue
        tensor = TensorKey.from_allocation(event.extra_fields)
        if tensor is None:
            continue  # never used as a tensor
        frames = []
        parent = event.parent
        while parent is not None:
            if parent.tag in (kinds.PyCall, kinds.PyCCall):
                frames.append({"filename": "none", "line": 0, "name": parent.name})
            parent = parent.parent
        stacks[tensor] = frames
    return stacks
