"""Rebuilds a sample on another device, so that both sides get the same values in the same memory layout."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .cases import OpInfo, Sample

ARGUMENTS_KEPT_ON_HOST = frozenset({"tensor_split"})
"""Ops whose arguments after the first stay on the CPU: every device refuses split points anywhere else."""


@dataclasses.dataclass
class Moved:
    """A sample's arguments on one device, and its tensors in the order in which they were met."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    versions: list[int]

    def changed(self) -> bool:
        """Whether an op has written to one of the tensors."""
        return self.versions != [tensor._version for tensor in self.tensors]


class Mover:
    """Copies whole storages, so that arguments which share memory, or are views into more of it, stay so."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.tensors: list[torch.Tensor] = []
        self._tensors_by_id: dict[int, torch.Tensor] = {}
        self._storages: dict[tuple[int, str], torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        if isinstance(value, str) and value == "cpu":
            return self.device
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._tensors_by_id.get(id(tensor))
        if known is not None:
            return known
        moved = tensor
        if tensor.device.type == "cpu":
            with torch.no_grad():
                moved = self._rebuild(tensor.detach(), self.device).requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved.detach(), tensor.requires_grad)
        self._tensors_by_id[id(tensor)] = moved
        self.tensors.append(moved)
        return moved

    def _rebuild(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        if tensor.layout == torch.sparse_coo:
            return torch.sparse_coo_tensor(
                self._rebuild(tensor._indices(), device),
                self._rebuild(tensor._values(), device),
                tensor.shape,
                is_coalesced=tensor.is_coalesced(),
            )
        if tensor.layout != torch.strided:
            by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
            return torch.sparse_compressed_tensor(
                self._rebuild(tensor.crow_indices() if by_row else tensor.ccol_indices(), device),
                self._rebuild(tensor.col_indices() if by_row else tensor.row_indices(), device),
                self._rebuild(tensor.values(), device),
                tensor.shape,
                layout=tensor.layout,
            )
        return self._rebuild_strided(tensor, device)

    def _rebuild_strided(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        storage = tensor.untyped_storage()
        bytes_there = self._storages.get((storage._cdata, device))
        if bytes_there is None:
            bytes_here = torch.empty(0, dtype=torch.uint8).set_(storage)
            bytes_there = bytes_here.clone() if device == "cpu" else bytes_here.to(device)
            self._storages[storage._cdata, device] = bytes_there
        moved = torch.empty(0, dtype=tensor.dtype, device=device).set_(
            bytes_there.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        if tensor.is_conj():
            moved = moved.conj()
        return torch._neg_view(moved) if tensor.is_neg() else moved


def move(info: OpInfo, sample: Sample, device: str) -> Moved:
    """Returns the sample rebuilt on `device`, also when that is the CPU: the original is never written to."""
    mover = Mover(device)
    input_ = mover(sample.input)
    if info.full_name in ARGUMENTS_KEPT_ON_HOST:
        mover.device = "cpu"
    args, kwargs = mover(sample.args), mover(sample.kwargs)
    if info.is_factory_function and not mover.tensors:
        kwargs = {"device": device, **kwargs}
    return Moved(input_, args, kwargs, mover.tensors, [tensor._version for tensor in mover.tensors])
