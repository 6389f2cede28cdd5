"""Groups split from a group, each with keys of its own in the store.

PyTorch splits the backend of each device type with one and the same part of the store. NCCL needs no store
for that. Gloo exchanges addresses there, so where one group of gloo serves two device types, two groups would
be made that read each other's addresses, and no rank returned. PyTorch's names of the parts count the groups
that a rank is in, so ranks that are in different numbers of groups would disagree about them, too.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from torch_loom import _C
from torch_loom.patches.declared import Place, patch

# How often each group was split. All its ranks take part in each split, so they count alike.
_splits: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@patch("torch.distributed.distributed_c10d:ProcessGroup.split_group")
def own_stores(place: Place) -> Any:
    """PyTorch splits the backend of each device type with one and the same part of the store. Where one group
    of gloo serves two device types, its parts would read each other's addresses, and no rank returned.
    """
    c10d: Any = torch.distributed.distributed_c10d
    original = place.original

    @functools.wraps(original)
    def split_group(
        self: Any,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> Any:
        together = _by_backend(self, device_types)
        backends = [self._get_backend(devices[0]) for devices in together]
        has_gloo = any(isinstance(backend, c10d.ProcessGroupGloo) for backend in backends)
        if not has_gloo or not all(
            isinstance(backend, (c10d.ProcessGroupGloo, _C.Communicator)) for backend in backends
        ):
            return original(self, ranks, timeout, opts, group_name, group_desc, device_types)
        count = _splits[self] = _splits.get(self, 0) + 1
        if self.rank() not in ranks:
            return None
        ranks = sorted(ranks)
        rank, size = ranks.index(self.rank()), len(ranks)
        key = f"split:{count}:{'_'.join(map(str, ranks))}"
        store = c10d.PrefixStore(key, self.get_group_store().clone())
        part = c10d.ProcessGroup(store, rank, size)
        types = c10d.ProcessGroup.BackendType
        default = getattr(types, self._get_backend_name().upper(), types.CUSTOM)
        part._set_default_backend(default)
        # Empty for the group of all ranks.
        parents = backends[0].options.global_ranks_in_group or range(self.size())
        for number, (devices, backend) in enumerate(zip(together, backends, strict=True)):
            own_store = c10d.PrefixStore(str(number), store)
            options = copy.deepcopy(backend.options)
            if isinstance(backend, _C.Communicator):
                options.split_from = backend
                options._timeout = timeout or options._timeout
                own = _C.Communicator(own_store, rank, size, options)
                kind = default if default in (types.NCCL, types.CUSTOM) else types.CUSTOM
            else:
                own = c10d.ProcessGroupGloo(own_store, rank, size, timeout=timeout or options._timeout)
                kind = default if any(each.type != "cpu" for each in devices) else types.GLOO
            own.options.global_ranks_in_group = [parents[each] for each in ranks]
            for device in devices:
                part._register_backend(device, kind, own)
        part._set_group_name(group_name or f"{self.group_name}:{key}")
        part._set_group_desc(group_desc or f"{self.group_desc}:split:{count}")
        return part

    return split_group


@patch("torch.distributed.distributed_c10d:ProcessGroupGloo._Options.__deepcopy__")
def copied_options(place: Place) -> Any:
    """PyTorch copies the options of the group that is split, and cannot copy gloo's."""
    return _copied


def _by_backend(group: Any, wanted: Sequence[torch.device] | None) -> list[list[torch.device]]:
    """Device types of a group that are wanted (None: all), those of one backend together."""
    types = None if wanted is None else {device.type for device in wanted}
    backends: dict[int, list[torch.device]] = {}
    for device in group._device_types:
        if types is None or device.type in types:
            backends.setdefault(id(group._get_backend(device)), []).append(device)
    # In one order on all ranks.
    return sorted(backends.values(), key=lambda devices: min(device.type for device in devices))


def _copied(options: Any, _: dict[int, Any]) -> Any:
    result = type(options)()
    for name in ("_devices", "_threads", "_timeout", "global_ranks_in_group", "group_name"):
        setattr(result, name, getattr(options, name))
    return result
