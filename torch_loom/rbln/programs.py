"""The programs that ``torch.compile(backend="rbln")`` builds: inputs and results, and how to run one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.rbln import chiplets

if TYPE_CHECKING:
    from torch import fx

    from torch_loom.compiler.built import Built

__all__ = [
    "CompiledProgram",
    "InputSpec",
    "OutputSpec",
    "PhysicalPlacement",
    "ShardPlacement",
    "capture_programs",
]

Dim = int | tuple[Any, ...]
"""A size: a number, or an expression of what is known when the program runs.

``("symbol", name)``, ``("prod", …)`` or ``("sum", …)`` of sizes.
"""


@dataclass(frozen=True)
class ShardPlacement:
    """The part of a tensor that a chiplet has.

    Attributes:
        node_id: the place of its NPU in the device.
        chiplet_id: its own place in the NPU.
        slice_shape: the sizes of the part.
    """

    node_id: int
    chiplet_id: int
    slice_shape: tuple[Dim, ...]


@dataclass(frozen=True)
class PhysicalPlacement:
    """How a tensor whose size is known at run time lies in device memory: as it is, flat and not padded.

    Its last dimension that can be divided among the chiplets is; the dimensions that are open are not.

    Attributes:
        shape: its sizes.
        dtype: the name of its dtype, ``"float16"``.
        shards: the part of each chiplet; one on the first chiplet where nothing can be divided.
    """

    shape: tuple[Dim, ...]
    dtype: str
    shards: tuple[ShardPlacement, ...]


@dataclass(frozen=True)
class InputSpec:
    """An input of a program.

    Attributes:
        name: in its graph.
        shape: the sizes that it was compiled with; () for a number.
        dtype: of a tensor; int64 or float64 for a number.
        physical_placement: where a size is open, how it lies on the device; else None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    physical_placement: PhysicalPlacement | None = None


@dataclass(frozen=True)
class OutputSpec:
    """A result of a program; see :class:`InputSpec`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    physical_placement: PhysicalPlacement | None = None


class ProgramRuntime:
    """Runs a program on its device, without Dynamo's guards."""

    def __init__(self, name: str, run: Callable[[Sequence[Any]], Sequence[Any]], num_inputs: int) -> None:
        self._name = name
        self._run = run
        self._num_inputs = num_inputs

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the program.

        Args:
            *inputs: what the program's ``input_specs`` say, parameters included.

        Returns:
            What its ``output_specs`` say.

        Raises:
            TypeError: it takes another number of inputs.
        """
        if len(inputs) != self._num_inputs:
            raise TypeError(
                f"program {self._name!r} takes {self._num_inputs} inputs, got {len(inputs)}: see input_specs"
            )
        return tuple(self._run(inputs))

    __call__ = run


@dataclass(frozen=True)
class CompiledProgram:
    """A program that the backend has built.

    Attributes:
        name: Dynamo's name of the compilation, ``"0/0"``; a training step has two programs of one name.
        device: the device that it runs on.
        runtime: runs it: ``runtime.run(*inputs)``.
        input_specs: its inputs, in the order in which ``run`` takes them.
        output_specs: its results, in the order in which ``run`` returns them.
    """

    name: str
    device: torch.device
    runtime: ProgramRuntime
    input_specs: tuple[InputSpec, ...]
    output_specs: tuple[OutputSpec, ...]


@contextmanager
def capture_programs() -> Iterator[list[CompiledProgram]]:
    """Collect the programs that this thread builds within a ``with`` block, in their order.

    Blocks may be nested: each has what is built within it. Programs that were built before are not seen; nor
    are those of the option ``numerics="float"``, which Inductor builds.

    Example:
        >>> with torch.rbln.capture_programs() as programs:  # doctest: +SKIP
        ...     torch.compile(model, backend="rbln")(x)
        >>> programs[0].runtime.run(*inputs)  # doctest: +SKIP
    """
    from torch_loom.compiler import built

    found: list[CompiledProgram] = []
    with built.listening(lambda program: found.append(_described(program))):
        yield found


def _described(program: Built) -> CompiledProgram:
    graph: fx.Graph = program.graph.graph
    inputs = graph.find_nodes(op="placeholder")
    (end,) = graph.find_nodes(op="output")
    results: Sequence[Any] = end.args[0]
    device = next((where for each in (*inputs, *results) if (where := _device_of(each)) is not None), None)
    if device is None:
        device = torch.device(DEVICE_TYPE, 0)
    return CompiledProgram(
        name=program.name,
        device=device,
        runtime=ProgramRuntime(program.name, program.run, len(inputs)),
        input_specs=tuple(InputSpec(node.name, *_spec(node.meta.get("val"), device)) for node in inputs),
        output_specs=tuple(OutputSpec(*_spec(_value(result), device)) for result in results),
    )


def _value(result: Any) -> Any:
    return result.meta.get("val") if hasattr(result, "meta") else result


def _device_of(node: Any) -> torch.device | None:
    value = _value(node)
    is_ours = isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE
    return torch.device(DEVICE_TYPE, value.device.index or 0) if is_ours else None


def _spec(value: Any, device: torch.device) -> tuple[tuple[int, ...], torch.dtype, PhysicalPlacement | None]:
    if not isinstance(value, torch.Tensor):
        return (), torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64, None
    shape = tuple(_known(size) for size in value.shape)
    is_open = any(isinstance(size, torch.SymInt) for size in value.shape)
    return shape, value.dtype, _placement(value, device) if is_open else None


def _known(size: int | torch.SymInt) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _placement(value: torch.Tensor, device: torch.device) -> PhysicalPlacement:
    shape = tuple(_dim(size) for size in value.shape)
    own = chiplets.units(device.index)
    are_alike = len({unit.capacity for unit in own}) == 1
    divided = [place for place, size in enumerate(shape) if are_alike and _is_divided(size, len(own))]
    place = divided[-1] if divided else None
    if place is None:
        own = own[:1]
    size = None if place is None else shape[place]
    shards = []
    for unit in own:
        part = list(shape)
        if place is not None and isinstance(size, int):
            part[place] = size // len(own)
        shards.append(ShardPlacement(unit.npu, unit.chiplet, tuple(part)))
    return PhysicalPlacement(shape, _dtype_name(value.dtype), tuple(shards))


def _is_divided(size: Dim, count: int) -> bool:
    return isinstance(size, int) and size > 0 and size % count == 0


def _dim(size: int | torch.SymInt) -> Dim:
    return size if isinstance(size, int) else _expression(size.node.expr)


def _expression(expression: Any) -> Dim:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Mul or expression.is_Add:
        kind = "prod" if expression.is_Mul else "sum"
        return kind, *(_expression(part) for part in expression.args)
    return "symbol", str(expression)


def _dtype_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    # The vendor's spelling ends in the bits.
    return f"{name.removeprefix('float8_').removesuffix('fn')}_float8" if name.startswith("float8") else name
