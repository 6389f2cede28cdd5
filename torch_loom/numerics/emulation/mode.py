"""The mode under which every function of PyTorch is computed as a Tensix chip would.

It is a function mode, not a dispatch mode, because torch.compile traces only the former. Also, the
conversions that it adds to results and their gradients are then part of the autograd graph: backward and
optimizers need no mode.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from torch_loom.errors import FormatError
from torch_loom.numerics import _fits
from torch_loom.numerics._checkpoints import recompute_under
from torch_loom.numerics._ops import NONE, ops
from torch_loom.numerics._scripts import check_scripts
from torch_loom.numerics.emulation import attention, elements, products
from torch_loom.numerics.emulation.matmul import NOT_TAKEN, UNFIT, matmul
from torch_loom.numerics.emulation.operands import (
    Weights,
    format_of,
    is_float,
    is_own,
    mark,
    operand,
    operands,
    pass_mark,
    pass_ownership,
    result,
    unmark,
)
from torch_loom.numerics.emulation.optimizers import OptimizerSteps
from torch_loom.numerics.emulation.paths import ModulePaths, Places, PlacesOfThreads, thread
from torch_loom.numerics.emulation.patterns import function_name, means_modules, warn_unknown
from torch_loom.numerics.emulation.precision import Precision, Settings, result_format
from torch_loom.numerics.emulation.rules import (
    LOSSES,
    MULTIPLICATIONS,
    NEW_VALUES,
    WITH_STATISTICS,
    WRITES,
    base_name,
    passes,
)
from torch_loom.numerics.formats import DataFormat


class Emulation(TorchFunctionMode):
    """What :func:`emulate` returns: a context, in which results are in a data format."""

    def __init__(self, settings: Settings, *, follows_modules: bool = True) -> None:
        super().__init__()
        self.settings = settings
        self.weights = Weights()
        self._follows_modules = follows_modules
        self._warned_scripts: set[str] = set()
        self._called: set[str] = set()  # paths of the modules that ran in this context
        self._maker, self._has_warned = 0, False
        self.places: Places = Places()
        self._optimizer: OptimizerSteps | None = None
        self._modules: ModulePaths | None = None
        if not torch.compiler.is_compiling():
            self._prepare()

    def _prepare(self) -> None:
        """Make what a context needs that is not traced: what belongs to threads, and hooks."""
        self._maker = threading.get_ident()
        self.places = PlacesOfThreads()
        self._optimizer = OptimizerSteps()
        if self._follows_modules and self.settings.overrides:
            self._modules = ModulePaths(self.places, self._called.update)
            weakref.finalize(self, self._modules.end)
        recompute_under(Emulation)
        check_scripts()

    def __reduce__(self) -> Any:
        # What threads, hooks and weights are at is no part of a copy.
        return _emulation, (self.settings, self._follows_modules)

    def __enter__(self) -> Emulation:
        if torch.compiler.is_compiling():
            if self._follows_modules:
                self._refuse_paths()
        elif self._optimizer is None:
            self._prepare()  # made in code that torch.compile has traced, entered outside of it
        place = self.places.here
        if not place.outer and not torch.compiler.is_compiling():
            for each in (self._optimizer, self._modules):
                if each is not None:
                    each.watch()
        emulating = thread.emulating
        place.outer.append((emulating.is_set, place.paths))
        # Where PyTorch calls the program in a function, such as backward(), that is no part of the function.
        emulating.is_set, place.paths = False, []
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _refuse_paths(self) -> None:
        for pattern in self.settings.overrides:
            if means_modules(pattern):
                raise FormatError(
                    f"emulate: overrides[{pattern!r}] means modules, whose calls a context inside compiled "
                    "code does not see; wrap the model, emulate(model, ...), or enter the context outside"
                )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        place = self.places.here
        thread.emulating.is_set, place.paths = place.outer.pop()
        if torch.compiler.is_compiling() or place.outer:
            return
        for each in (self._optimizer, self._modules):
            if each is not None:
                each.unwatch()
        # Other threads leave it while the program is still in it: a backward that computes again.
        is_makers = threading.get_ident() == self._maker
        if self._modules is not None and kind is None and is_makers and not self._has_warned:
            self._has_warned = True
            warn_unknown(self.settings.overrides, sorted(self._called))

    def check_script(self, script: Any) -> None:
        """Warn of a call of TorchScript, once a script."""
        if script.name in self._warned_scripts:
            return
        self._warned_scripts.add(script.name)
        warnings.warn(
            f"emulate: {script.name!r} is compiled by TorchScript, whose ops no function mode sees: they are "
            "exact. Use the module as it was before torch.jit, or torch.compile; said once",
            stacklevel=3,
        )

    def recomputed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs in this emulation, at the place where the program is now."""
        here = self.places.here
        paths, names = list(here.paths), here.names

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                place = self.places.here  # this thread's: backward may run in another
                kept = place.names
                place.paths, place.names = list(paths), names
                try:
                    return function(*args, **kwargs)
                finally:
                    place.names = kept

        return run

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        emulating = thread.emulating
        if emulating.is_set:  # an emulation entered inside computes the function
            return func(*args, **kwargs)
        emulating.is_set = True
        try:
            return self._function(func, args, kwargs)
        finally:
            emulating.is_set = False

    def _function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = name_of(func)
        if passes(name):
            value = func(*args, **kwargs)
            source = args[0] if args else None
            pass_ownership(value, source)
            if name in WRITES:
                unmark(source)
                return value
            return value if name in NEW_VALUES else pass_mark(value, source)
        if _is_exact(func) or (self._optimizer is not None and self._optimizer.is_stepping()):
            return func(*args, **kwargs)
        return self._call(func, name, args, kwargs)

    def _call(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base, in_place = base_name(name)
        paths = self.places.here.paths
        how, names_op = self.settings.named(paths[-1] if paths else "", base.strip("_"))
        if how is None:
            return func(*args, **kwargs)
        fmt = result_format(how, base, names_op)
        out = kwargs.get("out")
        if in_place and args:
            return self._in_place(func, base, how, fmt, args, kwargs)
        if out is not None:
            return self._into(out, func, base, how, fmt, args, kwargs)
        if "out" in kwargs:  # functions of Python's hand on their default
            kwargs = {key: value for key, value in kwargs.items() if key != "out"}
        value = self._value(func, base, how, fmt, args, kwargs)
        return result(value, fmt, how, base, args)

    def _value(
        self,
        func: Any,
        base: str,
        how: Precision,
        fmt: DataFormat,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        value = self._computed(func, base, how, fmt, args, kwargs)
        if value is not None:
            return value
        if base == "scaled_dot_product_attention":
            if not attention.is_masked_rightly(*args, **kwargs):
                _fits.refuse(func, args, kwargs)
            return attention.scaled_dot_product_attention(
                self._run, self._product(how), self._widen(how), self._take(how), *args, **kwargs
            )
        if base == "multi_head_attention_forward":
            arguments = attention.arguments_of_multi_head_attention(*args, **kwargs)
            value = attention.multi_head_attention(self._run, self._product(how), self._widen(how), arguments)
            if value is not None:
                return value
        return func(*self._given(base, how, args), **self._named(base, how, kwargs))

    def _given(self, base: str, how: Precision, args: tuple[Any, ...]) -> list[Any]:
        if base in LOSSES:
            return list(args)
        if base in WITH_STATISTICS:
            # Running statistics are updated in place: only the input and the parameters are operands.
            return [
                operand(each, how, self.weights) if place == 0 or isinstance(each, Parameter) else each
                for place, each in enumerate(args)
            ]
        return operands(args, how, self.weights)

    def _named(self, base: str, how: Precision, kwargs: dict[str, Any]) -> dict[str, Any]:
        if base in LOSSES:
            return kwargs
        only_parameters = base in WITH_STATISTICS
        return {
            key: operand(value, how, self.weights)
            if isinstance(value, Parameter) or (is_float(value) and not only_parameters)
            else value
            for key, value in kwargs.items()
        }

    def _in_place(
        self,
        func: Any,
        base: str,
        how: Precision,
        fmt: DataFormat,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        target: Any = args[0]
        if isinstance(target, Tensor) and is_own(target):
            return func(*args, **kwargs)  # the program changes its own weights
        value = self._computed(func, base, how, fmt, args, kwargs) if is_float(target) else None
        if value is not None:
            target.copy_(result(value, fmt, how, base, args))
            return mark(target, fmt)
        if is_float(target) and format_of(target) is None:
            ops.quantize_(target, how.made(how.format), NONE, how.made(how.format), base)
        rest = operands(args[1:], how, self.weights)
        value = func(target, *rest, **self._named(base, how, kwargs))
        return _written(value, fmt, how, base)

    def _into(
        self,
        out: Any,
        func: Any,
        base: str,
        how: Precision,
        fmt: DataFormat,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A function with ``out=``."""
        if isinstance(out, Tensor) and is_own(out):
            return func(*args, **kwargs)
        rest = {key: value for key, value in kwargs.items() if key != "out"}
        computed = self._computed(func, base, how, fmt, args, rest) if is_float(out) else None
        if computed is None:
            value = func(*self._given(base, how, args), **self._named(base, how, rest), out=out)
            return _written(value, fmt, how, base)
        made = result(computed, fmt, how, base, args)
        if out.shape != made.shape:
            out.resize_(made.shape)
        out.copy_(made)
        return mark(out, fmt)

    def _computed(
        self,
        func: Any,
        base: str,
        how: Precision,
        fmt: DataFormat,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The values of a product or of a function with a rule; None: it is computed as any other."""
        handler = products.handler_of(func, base)
        if handler is not None:
            value = handler(self, how, fmt, *args, **kwargs)
            if value is UNFIT:
                _fits.refuse(func, args, kwargs)
            if value is not NOT_TAKEN:
                return value
        if elements.has_rule(how, base):
            value = elements.value_of(self, how, base, args, kwargs)
            if value is not None:
                return value
        if base in MULTIPLICATIONS and len(args) == 2 and not kwargs:
            return products.multiply(self, how, *args)
        return None

    def _run(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """A function of PyTorch under this emulation, from inside it."""
        return self._call(func, name_of(func), args, kwargs)

    def _product(self, how: Precision) -> attention.Op:
        def product(a: Tensor, b: Tensor, *, wide: bool = False) -> Tensor:
            fmt = how.wide if wide else how.format
            return mark(matmul(self, how, fmt, a, b), fmt)

        return product

    def _take(self, how: Precision) -> attention.Op:
        def take(tensor: Tensor) -> Tensor:
            converted: Tensor = operand(tensor, how, self.weights, exact=True)
            return converted

        return take

    def _widen(self, how: Precision) -> attention.Op:
        def widen(tensor: Tensor) -> Tensor:
            widened: Tensor = result(tensor, how.wide, how, "softmax", ())
            return widened

        return widen


def _emulation(settings: Settings, follows_modules: bool) -> Emulation:
    """An emulation that is the copy of another."""
    return Emulation(settings, follows_modules=follows_modules)


def _written(value: Any, fmt: DataFormat, how: Precision, base: str) -> Any:
    """What a function wrote to its operands, in the format."""
    for tensor in value if isinstance(value, tuple | list) else (value,):
        if is_float(tensor):
            ops.quantize_(tensor, how.made(fmt), NONE, how.made(how.format), base)
            mark(tensor, fmt)
    return value


def name_of(func: Any) -> str:
    """The name of a function. torch.compile, which does not trace the attribute, takes it for a constant."""
    name: str = function_name(getattr(func, "__name__", ""))
    if name == "__get__":
        # A gradient is another tensor; other attributes are views.
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return attribute if attribute == "grad" else name
    return name


# What torch.compiler.assume_constant_result sets, without its import of the compiler.
name_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _is_exact(func: Any) -> bool:
    """Whether a call is no function of the program's: an op that another library or compiled code calls."""
    return isinstance(func, OpOverload | OpOverloadPacket)
