"""Element-wise kernels from a program's C++ text, as in ``torch.cuda.jiterator``.

The text is compiled for the host by ``c++``, at the first call for each combination of dtypes, and runs as
one kernel on the current stream. It is the program's own code and is trusted like it.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Iterable
from typing import Any

import torch

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.jiterator import source
from torch_loom.errors import CompilationError, DeviceTypeError, InputCountError, ShapeError
from torch_loom.kernels import host_compiler

__all__: list[str] = []

# CUDA's limits.
_MAX_INPUTS = 8
_MAX_OUTPUTS = 8

_FUNCTION = re.compile(
    r"\btemplate\s*<[^{};]*?>\s*(?:(?:inline|static|constexpr|__\w+__)\s+)*[\w:<>]+\s+(\w+)\s*\("
)
_PACKING = {bool: "?15x", int: "q8x", float: "d8x", complex: "dd"}

Number = bool | int | float | complex


def _create_jit_fn(code_string: str, **kwargs: Number) -> JittedFunction:
    """Return a function of tensors that runs an element-wise C++ function as one kernel.

    Args:
        code_string: ``template <typename T> T name(T x, T y, T alpha) { … }``: an element of each input, then
            the values of ``kwargs``, in their order; returns the element of the result. Helper functions may
            stand in front. T is the inputs' common dtype, float for half precision.
        kwargs: the arguments behind the tensors, and their defaults.

    The function takes 1 to 8 tensors of one device and these keywords. Tensors are broadcast, may have any
    strides, and are promoted to one dtype, which the result has. No gradient is recorded.

    Raises:
        TypeError: ``code_string`` is no text, or a default is no number.
        CompilationError: there is no template function in it; or, at a call, the compiler refuses it. The
            message has the compiler's words and the code.

    Example:
        >>> import torch
        >>> f = torch.loom.jiterator._create_jit_fn(
        ...     "template <typename T> T blend(T x, T y, T alpha) { return x + alpha * (y - x); }", alpha=0.5
        ... )
        >>> f(torch.zeros(2, device="loom"), torch.ones(2, device="loom"), alpha=0.25).tolist()
        [0.25, 0.25]
    """
    return JittedFunction(code_string, kwargs, num_outputs=1, returns=True)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Number) -> JittedFunction:
    """Return a function of tensors that runs an element-wise C++ function with several results as one kernel.

    Args:
        code_string: ``template <typename T> void name(T x, T alpha, T& first, T& second) { … }``: as for
            :func:`_create_jit_fn`, and references to the elements of the results at the end.
        num_outputs: how many results, 1 to 8. The function returns a tuple of them, or a single tensor.
        kwargs: as there.

    Raises:
        ValueError: ``num_outputs`` is not between 1 and 8.
        TypeError, CompilationError: as there.
    """
    if not 1 <= num_outputs <= _MAX_OUTPUTS:
        raise ValueError(f"num_outputs must be between 1 and {_MAX_OUTPUTS}, but got {num_outputs}")
    return JittedFunction(code_string, kwargs, num_outputs=num_outputs, returns=False)


class JittedFunction:
    """What the two functions return.

    Attributes:
        code_string: the C++ text.
        kernel_name: the name of its last function, which is run.
        num_outputs: how many results.
    """

    def __init__(
        self, code_string: str, defaults: dict[str, Number], *, num_outputs: int, returns: bool
    ) -> None:
        if not isinstance(code_string, str):
            raise TypeError(f"The code must be a str, but got {type(code_string).__name__}")
        names = _FUNCTION.findall(code_string)
        if not names:
            raise CompilationError(
                "Couldn't parse code, please check correctness: there is no function like "
                f"`template <typename T> T name(T x) {{ … }}` in it:\n{code_string}"
            )
        for name, value in defaults.items():
            _check_number(name, value)
        self.code_string = code_string
        self.kernel_name: str = names[-1]
        self.num_outputs = num_outputs
        self._returns = returns
        self._defaults = defaults

    def __call__(self, *tensors: torch.Tensor, **kwargs: Number) -> Any:
        """Run it on tensors of one device, with other values than the defaults for some keywords.

        Raises:
            TypeError: an argument is no tensor, or of a dtype that is not supported.
            InputCountError: there are no tensors or more than 8. (It is a ValueError and, as CUDA's, an
                AssertionError.)
            KeyError: there is no such keyword.
            DeviceTypeError: a tensor is not on a loom device, or not on that of the first tensor.
            ShapeError: the shapes cannot be broadcast.
            CompilationError: the compiler refuses the code for these dtypes.
        """
        for name, value in kwargs.items():
            if name not in self._defaults:
                raise KeyError(
                    f"{name} is not declared in function definition of {self.kernel_name}, which has "
                    f"{list(self._defaults)}"
                )
            _check_number(name, value)
        _check_tensors(tensors, self.kernel_name)
        common = _common_dtype(tensors)
        if any(t.is_conj() or t.is_neg() for t in tensors):
            tensors = tuple(t.resolve_conj().resolve_neg() for t in tensors)
        scalars = list({**self._defaults, **kwargs}.values())
        if not common.is_complex and any(isinstance(scalar, complex) for scalar in scalars):
            raise TypeError(f"A complex keyword needs complex tensors, but {self.kernel_name} got {common}")
        shape = _broadcast_shape(tensors)
        outputs = [_output(tensors, shape, common) for _ in range(self.num_outputs)]
        if math.prod(shape) != 0:
            function = self._function(common, tuple(t.dtype for t in tensors), tuple(map(type, scalars)))
            operands = [*outputs, *(t.detach().expand(shape) for t in tensors)]
            is_written = [i < self.num_outputs for i in range(len(operands))]
            packed = struct.pack("=" + "".join(_PACKING[type(s)] for s in scalars), *_parts(scalars))
            _C.launch_compiled(
                function,
                self.kernel_name,
                outputs[0].get_device(),
                operands,
                is_written,
                _numbers(operands),
                packed,
            )
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (a few functions, that programs keep anyway)
    def _function(
        self, common: torch.dtype, inputs: tuple[torch.dtype, ...], scalars: tuple[type, ...]
    ) -> int:
        text = source.generate(
            self.code_string, self.kernel_name, common, inputs, scalars, self.num_outputs, self._returns
        )
        is_whole = common in (torch.int32, torch.int64)
        return host_compiler.compiled(text, self.code_string, divides_whole_numbers=is_whole)


def _check_number(name: str, value: object) -> None:
    if type(value) not in _PACKING:
        raise TypeError(
            f"{name} must be a bool, int, float or complex, but got {type(value).__name__} {value!r}"
        )
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must be a whole number of 64 bits, but got {value}")


def _check_tensors(tensors: tuple[torch.Tensor, ...], name: str) -> None:
    if not 1 <= len(tensors) <= _MAX_INPUTS:
        raise InputCountError(
            f"jiterator only supports up to {_MAX_INPUTS} tensor inputs, and at least one; {name} got "
            f"{len(tensors)}"
        )
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"Argument {i} of {name} must be a tensor, but got {type(tensor).__name__}")
        if tensor.device.type != DEVICE_TYPE or tensor.device != tensors[0].device:
            where = f"{tensors[0].device}" if i else f"a {DEVICE_TYPE} device"
            raise DeviceTypeError(f"Expected argument {i} of {name} on {where}, but it is on {tensor.device}")
        if tensor.dtype not in source.STORED or tensor.layout != torch.strided:
            raise TypeError(f"{name} takes no {tensor.layout} tensors of {tensor.dtype} (argument {i})")


def _common_dtype(tensors: Iterable[torch.Tensor]) -> torch.dtype:
    # A tensor without dimensions decides the kind (whole, real, complex) but not the width beside others.
    by_kind: dict[bool, torch.dtype] = {}
    for tensor in tensors:
        has_dims = tensor.dim() > 0
        by_kind[has_dims] = torch.promote_types(by_kind.get(has_dims, tensor.dtype), tensor.dtype)
    if len(by_kind) == 1:
        return next(iter(by_kind.values()))
    return torch.result_type(
        torch.empty(1, dtype=by_kind[True], device="cpu"), torch.empty((), dtype=by_kind[False], device="cpu")
    )


def _broadcast_shape(tensors: tuple[torch.Tensor, ...]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        shapes = [tuple(tensor.shape) for tensor in tensors]
        raise ShapeError(f"The shapes {shapes} cannot be broadcast to one") from error


def _output(tensors: tuple[torch.Tensor, ...], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    for tensor in tensors:
        if tuple(tensor.shape) == shape:
            return torch.empty_like(tensor, dtype=dtype, requires_grad=False)
    return torch.empty(shape, dtype=dtype, device=tensors[0].device)


def _numbers(operands: list[torch.Tensor]) -> list[int]:
    """The loop's arguments: the number of dimensions, sizes, and the strides of each operand in bytes."""
    first = operands[0]
    # An output has no gaps: where all lie as it does, the order in memory will do.
    if all(operand.stride() == first.stride() for operand in operands):
        return [1, first.numel(), *(operand.element_size() for operand in operands)]
    numbers = [first.dim(), *first.shape]
    for operand in operands:
        numbers += [stride * operand.element_size() for stride in operand.stride()]
    return numbers


def _parts(scalars: list[Number]) -> list[bool | int | float]:
    parts: list[bool | int | float] = []
    for scalar in scalars:
        parts += [scalar.real, scalar.imag] if isinstance(scalar, complex) else [scalar]
    return parts
