"""What the converters of an ONNX model share, and the values and inputs that the model declares."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_loom.compiler.onnx import file


@dataclass(frozen=True)
class Scope:
    """What all graphs of a model share.

    Attributes:
        versions: of the domains of operators.
        folder: where external data is.
        ranks: the number of dimensions of values, as far as it is known.
        declared: those of them that the model says alone, and are checked when it runs.
        unties: whether copies of a vector are parameters of their own.
    """

    versions: dict[str, int]
    folder: Path | None
    ranks: dict[str, int]
    declared: frozenset[str] = frozenset()
    unties: bool = False


@dataclass(eq=False)
class Known:
    """A tensor whose value the model has.

    Attributes:
        name: in the model.
        source: the tensor, or the ``TensorProto`` that it is read from when it is needed.
        is_initializer: whether it stands in the model as data, and may be a weight.
    """

    name: str
    source: Any
    folder: Path | None = None
    is_initializer: bool = False

    @functools.cached_property
    def tensor(self) -> torch.Tensor:
        """The value."""
        if isinstance(self.source, torch.Tensor):
            return self.source
        return file.tensor_of(self.source, self.folder)

    @property
    def dims(self) -> list[int]:
        """The shape, without reading the value."""
        return list(self.source.shape if isinstance(self.source, torch.Tensor) else self.source.dims)

    @functools.cached_property
    def is_weight(self) -> bool:
        """Whether training changes it."""
        if not self.is_initializer or not self.dims:
            return False
        dtype = file.DTYPES.get(self.source.data_type)
        return dtype is not None and dtype.is_floating_point and dtype.itemsize > 1

    def renamed(self, name: str) -> Known:
        """Return what an ``Identity`` gives in a model of PyTorch's exporters.

        They write equal vectors once, as the scales of untrained normalisations, and the others as its
        copies: each is a parameter of its own. An equal matrix is a tied weight, and stays one parameter.
        """
        if not self.is_weight or len(self.dims) > 1:
            return self
        return Known(name, self.source, self.folder, is_initializer=True)


@dataclass(frozen=True)
class Input:
    """An input as a model declares it.

    Attributes:
        name: of the argument.
        dtype: None: it is no tensor.
        dims: sizes; a text or None where a size is not fixed.
    """

    name: str
    dtype: torch.dtype | None
    dims: tuple[int | str | None, ...] | None

    @property
    def is_fixed(self) -> bool:
        """Whether all sizes are known."""
        return self.dims is not None and all(isinstance(dim, int) for dim in self.dims)

    def __str__(self) -> str:
        sizes = "any shape" if self.dims is None else [dim if dim is not None else "?" for dim in self.dims]
        return f"{self.name} ({sizes})".replace("'", "")
