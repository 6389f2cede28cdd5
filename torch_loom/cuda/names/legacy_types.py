"""The types of before PyTorch 0.4: ``torch.loom.FloatTensor(2, 3)``, ``torch.loom.FloatStorage(4)``.

A tensor type is a constructor, a test for ``isinstance`` and an argument for ``Tensor.type``; tensors of
these types are plain ``torch.Tensor`` objects.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._utils import classproperty
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

from torch_loom import config

DEVICE_TYPE = config.device_name()

__all__ = [
    "BFloat16Storage",
    "BFloat16Tensor",
    "BoolStorage",
    "BoolTensor",
    "ByteStorage",
    "ByteTensor",
    "CharStorage",
    "CharTensor",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "DoubleTensor",
    "FloatStorage",
    "FloatTensor",
    "HalfStorage",
    "HalfTensor",
    "IntStorage",
    "IntTensor",
    "LongStorage",
    "LongTensor",
    "ShortStorage",
    "ShortTensor",
]


class TensorType(type):
    """The class of the tensor types; not of PyTorch's own, which crashes the interpreter's end when derived.

    Attributes:
        dtype: of its tensors.
        layout: of its tensors.
    """

    dtype: torch.dtype
    layout: torch.layout

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        # Tensor.type(t) reads the name in C, where it must be the full name.
        return cls.__qualname__

    @property
    def is_sparse(cls) -> bool:
        return cls.layout != torch.strided

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == DEVICE_TYPE
            and instance.dtype == cls.dtype
            and instance.layout == cls.layout
        )

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}'>"

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a tensor from sizes, a sequence of values, a storage or a tensor, as ``Tensor.new`` does."""
        if not cls.is_sparse:
            base = torch.empty(0, dtype=cls.dtype, device=DEVICE_TYPE)
        else:
            sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
            is_sized = all(type(size) is int for size in sizes)
            shape = tuple(sizes) if is_sized and sizes else (0,)
            base = torch.sparse_coo_tensor(size=shape, dtype=cls.dtype, device=DEVICE_TYPE)  # type: ignore[call-arg]
            if is_sized and not kwargs:
                return base  # Tensor.new makes a dense tensor of sizes
        made: torch.Tensor = base.new(*args, **kwargs)
        return made


def tensor_type(name: str, dtype: torch.dtype, layout: torch.layout = torch.strided) -> TensorType:
    """Return a new tensor type."""
    module = f"torch.{DEVICE_TYPE}" + ("" if layout == torch.strided else ".sparse")
    doc = f"Tensors of {dtype} on a {DEVICE_TYPE} device."
    names = {"__module__": module, "__qualname__": name, "__doc__": doc, "dtype": dtype, "layout": layout}
    return TensorType(f"{module}.{name}", (), names)


def _storage_type(name: str, dtype: torch.dtype) -> Any:
    # PyTorch reads the device off the module's name, and the dtype under both names. It warns at one.
    def warned(cls: type) -> torch.dtype:
        _warn_typed_storage_removal()  # type: ignore[no-untyped-call]
        return dtype

    names: dict[str, Any] = {"__module__": f"torch.{DEVICE_TYPE}", "_dtype": dtype}
    names["dtype"] = classproperty(warned)  # type: ignore[no-untyped-call]
    names["__doc__"] = f"Storages of {dtype} on a {DEVICE_TYPE} device."
    return types.new_class(name, (_LegacyStorage,), exec_body=lambda body: body.update(names))


BFloat16Tensor = tensor_type("BFloat16Tensor", torch.bfloat16)
BoolTensor = tensor_type("BoolTensor", torch.bool)
ByteTensor = tensor_type("ByteTensor", torch.uint8)
CharTensor = tensor_type("CharTensor", torch.int8)
DoubleTensor = tensor_type("DoubleTensor", torch.float64)
FloatTensor = tensor_type("FloatTensor", torch.float32)
HalfTensor = tensor_type("HalfTensor", torch.float16)
IntTensor = tensor_type("IntTensor", torch.int32)
LongTensor = tensor_type("LongTensor", torch.int64)
ShortTensor = tensor_type("ShortTensor", torch.int16)

BFloat16Storage = _storage_type("BFloat16Storage", torch.bfloat16)
BoolStorage = _storage_type("BoolStorage", torch.bool)
ByteStorage = _storage_type("ByteStorage", torch.uint8)
CharStorage = _storage_type("CharStorage", torch.int8)
ComplexDoubleStorage = _storage_type("ComplexDoubleStorage", torch.complex128)
ComplexFloatStorage = _storage_type("ComplexFloatStorage", torch.complex64)
DoubleStorage = _storage_type("DoubleStorage", torch.float64)
FloatStorage = _storage_type("FloatStorage", torch.float32)
HalfStorage = _storage_type("HalfStorage", torch.float16)
IntStorage = _storage_type("IntStorage", torch.int32)
LongStorage = _storage_type("LongStorage", torch.int64)
ShortStorage = _storage_type("ShortStorage", torch.int16)
