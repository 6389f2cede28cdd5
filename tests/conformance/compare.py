"""Comparing what the device returned with what the CPU returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten

from .model import Mismatch, ValueMismatch

_WIDER = {
    torch.complex32: torch.complex64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
}
"""Dtypes that the CPU cannot compare, and the wider ones that hold their values exactly."""

_COMPLEX32_TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


def leaves(tree: Any) -> list[Any]:
    return tree_flatten(tree)[0]


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def check_metadata(expected: Any, actual: Any, device: str | None, *, strides: bool = True) -> None:
    """Raises Mismatch unless both trees have one structure and equal tensors but for their values.

    Tensors that are on the CPU in `expected` must be on `device`, unless that is None.
    """
    (expected_leaves, expected_spec), (actual_leaves, actual_spec) = (
        tree_flatten(expected),
        tree_flatten(actual),
    )
    if expected_spec != actual_spec:
        raise Mismatch(f"the structure is {actual_spec}, on cpu {expected_spec}")
    for position, (here, there) in enumerate(zip(expected_leaves, actual_leaves, strict=True)):
        where = f"output {position}: "
        if type(here) is not type(there):
            raise Mismatch(f"{where}type is {type(there).__name__}, on cpu {type(here).__name__}")
        if isinstance(here, torch.Tensor):
            _check_tensor_metadata(where, here, there, device, strides=strides)


def _check_tensor_metadata(
    where: str, here: torch.Tensor, there: torch.Tensor, device: str | None, *, strides: bool
) -> None:
    for name in ("dtype", "layout", "shape"):
        if getattr(here, name) != getattr(there, name):
            raise Mismatch(f"{where}{name} is {getattr(there, name)}, on cpu {getattr(here, name)}")
    if device is not None and here.device.type == "cpu" and there.device.type != torch.device(device).type:
        raise Mismatch(f"{where}the tensor is on {there.device}, not on {device}")
    if here.requires_grad != there.requires_grad:
        raise Mismatch(f"{where}requires_grad is {there.requires_grad}, on cpu {here.requires_grad}")
    if here.layout != torch.strided:
        return
    if strides and here.stride() != there.stride():
        raise Mismatch(
            f"{where}strides are {there.stride()}, on cpu {here.stride()} (shape {tuple(here.shape)})"
        )
    for name in ("is_conj", "is_neg"):
        if getattr(here, name)() != getattr(there, name)():
            raise Mismatch(f"{where}{name}() is {getattr(there, name)()}, on cpu {getattr(here, name)()}")


def values_identical(expected: Any, actual: Any) -> bool:
    """Whether all values agree. Raises ValueMismatch when they do not even within PyTorch's tolerances."""
    identical = True
    for position, (here, there) in enumerate(zip(leaves(expected), leaves(actual), strict=True)):
        if isinstance(here, torch.Tensor):
            identical &= _same_values(f"output {position}: ", here, there)
        elif not _same_object(here, there):
            raise ValueMismatch(f"output {position}: the value is {there!r}, on cpu {here!r}")
    return identical


def _same_object(here: Any, there: Any) -> bool:
    if isinstance(here, torch.device):
        return True
    if isinstance(here, (float, complex)):
        return bool(torch.isclose(torch.tensor(here), torch.tensor(there), equal_nan=True))
    return bool(here == there)


def _same_values(where: str, here: torch.Tensor, there: torch.Tensor) -> bool:
    if here.layout != torch.strided:
        return all(
            _same_values(where, *pair) for pair in zip(_components(here), _components(there), strict=True)
        )
    here, there = to_host(here), to_host(there)
    tolerance: dict[str, Any] = {}
    if here.dtype in _WIDER:
        tolerance = _COMPLEX32_TOLERANCE if here.dtype == torch.complex32 else {"rtol": 0, "atol": 0}
        here, there = here.to(_WIDER[here.dtype]), there.to(_WIDER[there.dtype])
    if torch.equal(here, there):
        return True
    try:
        torch.testing.assert_close(there, here, equal_nan=True, **tolerance)
    except AssertionError as error:
        raise ValueMismatch(where + str(error)) from None
    same = (here == there) | (here.isnan() & there.isnan())
    return bool(same.all())


def _components(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a plain CPU tensor with the same values: detached, conjugate and negative bits resolved."""
    return tensor.detach().cpu().resolve_conj().resolve_neg()


class Share(NamedTuple):
    """Which tensor an output shares memory with, where in it, and whether autograd knows it for a view."""

    owner: str
    offset: int
    is_view: bool


def check_aliasing(
    expected: Any, actual: Any, inputs_here: Sequence[torch.Tensor], inputs_there: Sequence[torch.Tensor]
) -> None:
    """Raises Mismatch unless outputs share memory with inputs, and with each other, as they do on the CPU."""
    here, there = sharing(tensors(expected), inputs_here), sharing(tensors(actual), inputs_there)
    if here != there:
        raise Mismatch(f"outputs share memory as {there}, on cpu as {here}")


def sharing(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[Share | None]:
    """Returns for each output how it shares memory, `None` for one with memory of its own."""
    owners: dict[int, str] = {}
    for position, tensor in enumerate(inputs):
        owners.setdefault(_address(tensor), f"input {position}")
    shared: list[Share | None] = []
    for position, tensor in enumerate(outputs):
        address = _address(tensor)
        owner = owners.setdefault(address, f"output {position}") if address else None
        own = owner is None or owner == f"output {position}"
        shared.append(
            None if own or owner is None else Share(owner, int(tensor.storage_offset()), tensor._is_view())
        )
    return shared


def _address(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's storage, 0 if it has none or is empty."""
    if tensor.layout != torch.strided or tensor._is_zerotensor():
        return 0
    storage = tensor.untyped_storage()
    return storage.data_ptr() if storage.nbytes() else 0
