"""Large tensors of the host, which take no memory while a dry run is under way.

A model is made on the host, filled at random and then moved. In a dry run the values do not matter, and the
model may be larger than this machine. So large tensors get untouched pages, and ops that would fill them do
nothing: they read as zeros.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

LEAST_BYTES = 1 << 20
# Linux: pages count when they are touched, and not against what may be promised.
_NO_RESERVE = 0x4000

_FACTORIES = frozenset(
    (
        *(torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint),
        *(torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like),
        *(torch.randn_like, torch.normal),
    )
)
_FILLS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("uniform_", "normal_", "fill_", "zero_", "copy_", "erfinv_", "mul_", "add_", "div_", "sub_"),
        *("clamp_", "exponential_", "bernoulli_"),
    )
)
# Some of these are given here whole, and what they call then is not.
_INITS = frozenset(
    function
    for name, function in vars(torch.nn.init).items()
    if name.endswith("_") and not name.startswith("_") and callable(function)
)
_BACKWARDS = frozenset((torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad))
_HEARD = _BACKWARDS | {torch.Tensor.data.__set__}  # type: ignore[attr-defined]
_CASTS = {
    torch.Tensor.half: torch.float16,
    torch.Tensor.bfloat16: torch.bfloat16,
    torch.Tensor.float: torch.float32,
    torch.Tensor.double: torch.float64,
}


class Listener(Protocol):
    """What is told of the program's calls that change its parameters."""

    def backward(self, run: Callable[[], Any], roots: Any, inputs: Any) -> Any:
        """Run a backward pass from ``roots``, to ``inputs`` alone unless that is None; return its result."""

    def replace_data(self, tensor: torch.Tensor) -> None:
        """A tensor is about to be given other data."""


class CostlessHost(TorchFunctionMode):
    """While it is entered, large tensors made on the host take no memory.

    Attributes:
        listener: what is told of backward passes and of data that is replaced; None: nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listener: Listener | None = None
        self._made: dict[int, StorageWeakRef] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a function of PyTorch, or what stands for it on tensors that cost nothing."""
        kwargs = kwargs or {}
        if func in _FACTORIES:
            made = self._factory(func, args, kwargs)
            if made is not None:
                return made
        elif func in _FILLS or func in _INITS:
            filled = args[0] if args else kwargs.get("tensor")
            if self._is_costless(filled):
                return filled
        elif func in _CASTS:
            if args and self._is_costless(args[0]):
                return self._cast(args[0], _CASTS[func])
        elif func is torch.Tensor.to and args and self._is_costless(args[0]):
            device, dtype, _, _ = torch._C._nn._parse_to(*args[1:], **kwargs)
            if dtype is not None and (device is None or device.type == "cpu"):
                return self._cast(args[0], dtype)
        elif func in _HEARD and self.listener is not None:
            if func in _BACKWARDS:
                inputs = args[1] if func is torch.autograd.grad else kwargs.get("inputs")
                return self.listener.backward(lambda: func(*args, **kwargs), args[0], inputs)
            self.listener.replace_data(args[0])
        return func(*args, **kwargs)

    def _factory(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> torch.Tensor | None:
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        device = kwargs.get("device") or (torch.get_default_device() if source is None else source.device)
        if torch.device(device).type != "cpu" or kwargs.get("out") is not None:
            return None
        if kwargs.get("pin_memory") or (source is not None and func is torch.normal):
            return None
        known = {name: value for name, value in kwargs.items() if name not in ("device", "generator")}
        shape = func(*args, **known, device="meta")
        if shape.layout is not torch.strided or shape.numel() * shape.element_size() < LEAST_BYTES:
            return None
        return self._made_like(shape, shape.dtype, kwargs.get("requires_grad", False))

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if tensor.dtype == dtype:
            return tensor
        return self._made_like(tensor, dtype, False)

    def _made_like(self, tensor: torch.Tensor, dtype: torch.dtype, requires_grad: bool) -> torch.Tensor:
        count = math.prod(tensor.shape)
        size_bytes = count * torch.empty(0, dtype=dtype, device="meta").element_size()
        flat = self._flat(size_bytes, dtype)
        return flat.as_strided(tensor.shape, _dense_strides(tensor)).requires_grad_(requires_grad)

    def _flat(self, size_bytes: int, dtype: torch.dtype) -> torch.Tensor:
        memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        made = torch.frombuffer(memory, dtype=dtype)
        storage = made.untyped_storage()
        self._made = {key: ref for key, ref in self._made.items() if not _is_gone(ref)}
        self._made[storage.data_ptr()] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return made

    def storage(self, size_bytes: int) -> torch.UntypedStorage:
        """Return storage of so many bytes that takes no memory until it is written to."""
        if size_bytes == 0:
            return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
        return self._flat(size_bytes, torch.uint8).untyped_storage()

    def has_made(self, storage: torch.UntypedStorage) -> bool:
        """Return whether storage is of those that cost nothing, and so has zeros in it."""
        ref = self._made.get(storage.data_ptr())
        return ref is not None and not _is_gone(ref)

    def _is_costless(self, tensor: object) -> bool:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            return False
        # A parameter of a lazy module has no memory yet.
        if tensor.layout is not torch.strided or is_lazy(tensor):
            return False
        return self.has_made(tensor.untyped_storage())


def _dense_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return torch.empty_like(tensor, device="meta").stride()


def _is_gone(ref: StorageWeakRef) -> bool:
    return bool(ref.expired())  # type: ignore[no-untyped-call]
