"""Tensors as PyBuda's modules see them: a value, or only a shape while a graph is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy
import torch

from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution.trace import value_of
from torch_loom.pybuda.formats import DataFormat, format_of, torch_dtype

TILE = 32


class TensorShape:
    """The sizes of a tensor, in tiles too: ``w, z, r, c``, rows and columns of 32 elements ``rt, ct``."""

    def __init__(self, *dims: int) -> None:
        self.dims = tuple(int(dim) for dim in dims)
        four = (*([1] * (4 - len(self.dims))), *self.dims)[-4:]
        self.w, self.z, self.r, self.c = four
        self.rt, self.ct = -(-self.r // TILE), -(-self.c // TILE)

    def get_pytorch_shape(self) -> tuple[int, ...]:
        """Return the sizes as PyTorch has them."""
        return self.dims

    def __getitem__(self, place: int) -> int:
        return self.dims[place]

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Any:
        return iter(self.dims)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self.dims == other.dims
        return isinstance(other, (tuple, list)) and self.dims == tuple(other)

    def __hash__(self) -> int:
        return hash(self.dims)

    def __repr__(self) -> str:
        return f"TensorShape({', '.join(map(str, self.dims))})"


class TensorBase:
    """What tensors and parameters share: arithmetic."""

    operators: ClassVar[dict[str, Callable[[str, Any, Any], Tensor]]] = {}
    """The ops behind ``+``, ``-`` and ``*``, by their names; ``op``, which stands on tensors, gives them."""

    def __add__(self, other: Any) -> Tensor:
        return _binary("Add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _binary("Add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _binary("Subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _binary("Subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _binary("Multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _binary("Multiply", other, self)

    # A torch tensor on the left must leave the arithmetic to this class.
    __torch_function__ = None


class Tensor(TensorBase):
    """A tensor with a data format. Made by ``create_from_torch``, ``create_from_trace``, and by ops."""

    def __init__(self, value: torch.Tensor, data_format: DataFormat | None = None, constant: bool = False):
        self._value = value
        self._data_format = data_format or format_of(value.dtype)
        self.constant = constant
        self.src_op: Any = None

    @classmethod
    def create_from_torch(
        cls,
        torch_tensor: torch.Tensor,
        dev_data_format: DataFormat | None = None,
        constant: bool = False,
    ) -> Tensor:
        """Return a tensor with the value of a torch tensor; ``dev_data_format`` is what the device stores.

        Raises:
            PyBudaError: no torch tensor, or a dtype without data format.
        """
        if not isinstance(torch_tensor, torch.Tensor):
            raise PyBudaError(f"create_from_torch takes a torch tensor, not {type(torch_tensor).__name__}")
        return cls(torch_tensor, dev_data_format, constant)

    @classmethod
    def create_from_trace(cls, src_op: Any, shape: Any, data_format: DataFormat) -> Tensor:
        """Return a tensor without a value: what an op of a traced graph returns."""
        made = cls(torch.empty(tuple(shape), dtype=torch_dtype(data_format), device="meta"), data_format)
        made.src_op = src_op
        return made

    @property
    def shape(self) -> TensorShape:
        """The sizes."""
        return TensorShape(*self._value.shape)

    @property
    def data_format(self) -> DataFormat:
        """The format that the device stores it in."""
        return self._data_format

    @property
    def pt_data_format(self) -> torch.dtype:
        """The dtype of the value."""
        return self._value.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether gradients reach it."""
        return self._value.requires_grad

    def set_requires_grad(self, requires_grad: bool) -> None:
        """Say whether gradients reach it."""
        self._value.requires_grad_(requires_grad)

    def has_value(self) -> bool:
        """Whether there is a value, and not only a shape."""
        return not self._value.is_meta

    def value(self) -> torch.Tensor:
        """Return the torch tensor itself.

        Raises:
            PyBudaError: the tensor comes from a trace and has no value.
        """
        if not self.has_value():
            raise PyBudaError("this tensor comes from a trace and has a shape only: has_value() tells")
        return self._value

    def set_value(self, value: torch.Tensor) -> None:
        """Replace the value, of the same shape.

        Raises:
            PyBudaError: another shape.
        """
        if value.shape != self._value.shape:
            raise PyBudaError(f"the tensor has shape {tuple(self._value.shape)}, not {tuple(value.shape)}")
        self._value = value

    def to_pytorch(self) -> torch.Tensor:
        """Return the value as a torch tensor, as ``value``."""
        return self.value()

    def to_framework(self, framework: str) -> Any:
        """Return the value as a tensor of ``"pytorch"``, ``"tensorflow"`` or ``"jax"``.

        Raises:
            PyBudaError: another name.
        """
        makers = {
            "pytorch": self.to_pytorch,
            "tensorflow": self.to_tensorflow,
            "jax": self.to_jax,
        }
        if framework not in makers:
            raise PyBudaError(f"{framework!r} is no framework: {', '.join(makers)}")
        return makers[framework]()

    def to_tensorflow(self) -> Any:
        """Return the value as a TensorFlow tensor; needs TensorFlow."""
        return _imported("tensorflow").convert_to_tensor(self.value().detach().cpu().numpy())

    def to_jax(self) -> Any:
        """Return the value as a JAX array; needs JAX."""
        return _imported("jax.numpy").asarray(self.value().detach().cpu().numpy())

    def to_format(self, data_format: DataFormat) -> Tensor:
        """Return the tensor cast to the dtype that holds another data format."""
        return Tensor(self._value.to(torch_dtype(data_format)), data_format, self.constant)

    def detach(self) -> Tensor:
        """Return the tensor without its gradients' history."""
        return Tensor(self._value.detach(), self._data_format, self.constant)

    def clone(self) -> Tensor:
        """Return a copy."""
        return Tensor(self._value.clone(), self._data_format, self.constant)

    def __repr__(self) -> str:
        text = repr(self._value) if self.has_value() else f"shape={tuple(self._value.shape)}"
        return f"Tensor({text}, {self._data_format.name})"


SomeTensor = torch.Tensor | Tensor | numpy.ndarray


def to_torch(value: Any) -> torch.Tensor:
    """Return the torch tensor of a torch tensor, PyBuda tensor, parameter or numpy array.

    Raises:
        TypeError: something else.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, TensorBase):
        return value_of(value)
    if hasattr(value, "__array__"):
        return torch.as_tensor(value)
    raise TypeError(f"a torch tensor, PyBuda tensor or numpy array was expected, not {type(value).__name__}")


def to_pt_tensors(values: Any) -> tuple[torch.Tensor, ...]:
    """Return the torch tensors of several values; of a single value, of one."""
    several = values.values() if isinstance(values, dict) else values
    several = several if isinstance(several, (tuple, list)) or several is not values else (values,)
    return tuple(to_torch(value) for value in several)


def _binary(op: str, left: Any, right: Any) -> Tensor:
    return TensorBase.operators[op]("", left, right)


def _imported(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise PyBudaError(f"{package} is not installed: pip install {package}") from error
