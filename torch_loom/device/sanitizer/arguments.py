"""Which memory an op of PyTorch reads and writes, by its schema, as in ``torch.cuda._sanitizer``.

The sanitizer here reads the tape and needs none of them; programs that intercept ops do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from torch_loom.device._core.device_index import DEVICE_TYPE

TK = TypeVar("TK")
TVa = TypeVar("TVa")
TVb = TypeVar("TVb")


def zip_by_key(a: Mapping[TK, TVa], b: Mapping[TK, TVb]) -> Iterator[tuple[TK, TVa, TVb]]:
    """Yield each key that is in both mappings, with its two values, in the order of the first."""
    for key, value in a.items():
        if key in b:
            yield key, value, b[key]


def zip_arguments(
    schema: torch._C.FunctionSchema, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch._C.Argument, Any]]:
    """Yield each argument that a call was given, as the schema declares it, with its value."""
    arguments = list(schema.arguments)
    yield from zip(arguments, args, strict=False)
    named = {argument.name: argument for argument in arguments[len(args) :]}
    for _, argument, value in zip_by_key(named, kwargs):
        yield argument, value


class ArgumentHandler:
    """Collects the addresses that a call reads and writes.

    Attributes:
        dataptrs_read: addresses of tensors that are read.
        dataptrs_written: addresses of tensors that are written.
        tensor_aliases: for each address the names of the arguments there.
        outputs: addresses of the results.
    """

    def __init__(self) -> None:
        self.dataptrs_read: set[int] = set()
        self.dataptrs_written: set[int] = set()
        self.tensor_aliases: dict[int, list[str]] = {}
        self.outputs: set[int] = set()

    def parse_inputs(
        self,
        schema: torch._C.FunctionSchema,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        is_factory: bool,
    ) -> None:
        """Take the arguments of a call. A factory such as ``zeros_like`` looks at no element of them."""
        for argument, value in zip_arguments(schema, args, kwargs):
            is_write, is_view = _aliasing(argument)
            for tensor in _tensors(value):
                self._add(tensor, argument.name, is_write=is_write, is_read=not (is_view or is_factory))

    def parse_outputs(self, schema: torch._C.FunctionSchema, outputs: Any, *, is_factory: bool) -> None:
        """Take the results of a call. A view and what a factory makes are not counted as written."""
        for returned, value in zip(schema.returns, (outputs,), strict=False):
            _, is_view = _aliasing(returned)
            for tensor in _tensors(value):
                self.outputs.add(self._add(tensor, None, is_write=not (is_view or is_factory), is_read=False))

    def _add(self, tensor: torch.Tensor, name: str | None, *, is_write: bool, is_read: bool) -> int:
        # Tensors without memory are identified by their objects.
        address = tensor.data_ptr() or id(tensor)
        if is_write:
            self.dataptrs_written.add(address)
        elif is_read:
            self.dataptrs_read.add(address)
        names = self.tensor_aliases.setdefault(address, [])
        if name is not None:
            names.append(name)
        return address


def _aliasing(argument: torch._C.Argument) -> tuple[bool, bool]:
    """Whether an argument or result is written in place, and whether it is only viewed."""
    info = argument.alias_info
    return info is not None and info.is_write, info is not None and not info.is_write


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == DEVICE_TYPE]
