"""Parameters of PyBuda modules."""

from __future__ import annotations

from typing import Any

import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution.trace import value_of
from torch_loom.pybuda.formats import DataFormat, format_of, torch_dtype
from torch_loom.pybuda.tensor import TensorBase, TensorShape, to_torch


class Parameter(TensorBase):
    """A parameter of a module: ``Parameter(32, 64)`` of sizes, or ``Parameter(tensor)`` of a value.

    Args:
        args: sizes (the value is set later), or one tensor.
        requires_grad: whether it is trained.
        name: its name; a module gives it ``module.attribute`` otherwise.
        dev_data_format: the format that the device stores it in.

    Raises:
        PyBudaError: neither sizes nor a tensor.
    """

    def __init__(
        self,
        *args: Any,
        requires_grad: bool = True,
        name: str | None = None,
        dev_data_format: DataFormat | None = None,
    ) -> None:
        if not args:
            raise PyBudaError("a parameter needs its sizes or a tensor: Parameter(32, 64), Parameter(tensor)")
        self._value: torch.Tensor | None = None
        self._name = name
        self._requires_grad = requires_grad
        if len(args) == 1 and not isinstance(args[0], int):
            given = to_torch(args[0]) if not isinstance(args[0], (tuple, list)) else None
            if given is None:
                self._shape = tuple(int(dim) for dim in args[0])
            else:
                self._value = given.detach()
                self._shape = tuple(given.shape)
        elif all(isinstance(dim, int) for dim in args):
            self._shape = tuple(args)
        else:
            raise PyBudaError(f"a parameter needs whole numbers as sizes, or one tensor, not {args!r}")
        if dev_data_format is None and self._value is not None:
            dev_data_format = format_of(self._value.dtype)
        self._data_format = dev_data_format or DataFormat.Float32

    @classmethod
    def create_from_torch(cls, torch_tensor: torch.Tensor) -> Parameter:
        """Return a parameter with the value of a torch tensor."""
        return cls(torch_tensor, requires_grad=torch_tensor.requires_grad)

    @property
    def shape(self) -> TensorShape:
        """The sizes."""
        return TensorShape(*self._shape)

    @property
    def data_format(self) -> DataFormat:
        """The format that the device stores it in."""
        return self._data_format

    @property
    def pt_data_format(self) -> torch.dtype:
        """The dtype of its value."""
        return self._value.dtype if self._value is not None else torch_dtype(self._data_format)

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self._requires_grad

    def set_requires_grad(self, requires_grad: bool) -> None:
        """Say whether it is trained."""
        self._requires_grad = requires_grad

    def has_value(self) -> bool:
        """Whether its value was set."""
        return self._value is not None

    def set_value(self, value: Any) -> None:
        """Set the value, of the parameter's shape.

        Raises:
            PyBudaError: another shape.
        """
        given = to_torch(value).detach()
        if tuple(given.shape) != self._shape:
            raise PyBudaError(f"parameter {self._name!r} has shape {self._shape}, not {tuple(given.shape)}")
        self._value = given

    def value(self, is_buda: bool = False) -> torch.Tensor:
        """Return the value; padded to four dimensions and whole tiles of 32 x 32 if ``is_buda``.

        Raises:
            PyBudaError: none was set.
        """
        found = value_of(self)
        if not is_buda:
            return found
        shape = self.shape
        found = found.reshape((1,) * (4 - found.dim()) + tuple(found.shape))
        return torch.nn.functional.pad(found, (0, shape.ct * 32 - shape.c, 0, shape.rt * 32 - shape.r))

    def get_empty_tensor(self) -> torch.Tensor:
        """Return a torch tensor of its shape and dtype, without contents."""
        return torch.empty(self._shape, dtype=self.pt_data_format)

    def get_name(self) -> str | None:
        """Return the name."""
        return self._name

    def set_name(self, name: str) -> None:
        """Give it another name."""
        self._name = name

    def set_data_format(self, data_format: DataFormat) -> None:
        """Set the format that the device stores it in, and cast its value to the dtype that holds it."""
        self._data_format = data_format
        if self._value is not None:
            self._value = self._value.to(torch_dtype(data_format))

    def __repr__(self) -> str:
        return f"Parameter({self._name!r}, {self._shape}, {self._data_format.name})"
