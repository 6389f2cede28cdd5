"""Fake kernels whose results lie in memory as those of the engine's kernels do.

Fake kernels of convolutions ask for the device's type to know the layout of a result, and know the devices
of PyTorch alone. A layout that differs from the kernel's is found by Inductor's checks of strides, or gives
wrong numbers where these are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

_CPU = torch.device("cpu")


def stand_in(
    mode: Any, shape: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, device: torch.device
) -> Any:
    """Return a fake tensor; where its sizes are numbers, in a tenth of the time of a fake factory."""
    if not all(type(size) is int for size in (*shape, *strides)):
        with mode:
            return torch.empty_strided(shape, strides, dtype=dtype, device=device)
    with torch._C._DisableTorchDispatch():
        inner = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    known = _attributes.get(device)
    if known is None:
        fake = FakeTensor(mode, inner, device)
        _attributes[device] = dict(fake.__dict__)
        del _attributes[device]["fake_mode"]
        return fake
    # What the constructor does, without its checks of arguments.
    fake = torch.Tensor._make_subclass(
        FakeTensor, inner, dispatch_device=True, device_for_backend_keys=device
    )
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
    else:
        torch._C._set_throw_on_mutable_data_ptr(fake)
    fake.__dict__.update(known)
    fake.fake_mode = mode
    return fake


_attributes: dict[torch.device, dict[str, Any]] = {}
"""What a new fake tensor on a device has beside its mode."""


def lay_out_convolutions_as_engine(name: str) -> None:
    """Run the fake kernels of convolutions on fake tensors of the engine.

    They ask in C++ which library would run it, and that answers by the type of the device. No upstream issue.
    """
    from torch._subclasses.fake_impls import op_implementations_dict

    known: dict[Any, Any] = op_implementations_dict
    aten = torch.ops.aten
    for op in (
        *(aten.convolution.default, aten.convolution_backward.default),
        *(aten._convolution.default, aten._convolution.deprecated),
    ):
        if op in known:
            known[op] = _on_engine(known[op], name)


def _on_engine(original: Any, name: str) -> Any:
    def run(fake_mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        device = next((leaf.device for leaf in leaves if leaf.device.type == name), None)
        if device is None:
            return original(fake_mode, op, *args, **kwargs)

        def moved(place: torch.device) -> Any:
            return lambda each: stand_in(fake_mode, each.shape, each.stride(), each.dtype, place)

        lent, named = pytree.tree_map_only(torch.Tensor, moved(_CPU), (args, kwargs))
        return pytree.tree_map_only(torch.Tensor, moved(device), original(fake_mode, op, *lent, **named))

    run._loom_original = original  # type: ignore[attr-defined]
    return run
