"""Rewrites of Triton's IR in front of the lowering."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace

from torch_loom.kernels.ttir.model import (
    Block,
    Dense,
    Function,
    Module,
    Op,
    Pointer,
    Region,
    Scalar,
    Tensor,
    Value,
    element_of,
)

_I32, _I64, _F32 = Scalar("i32"), Scalar("i64"), Scalar("f32")


def rewrite(module: Module) -> Module:
    """Return the module with counted addresses in loops, and products of wide numbers."""
    return Module(tuple(_rewritten(function) for function in module.functions))


def _rewritten(function: Function) -> Function:
    function = replace(function, body=_mapped(function.body, _widened))
    return replace(function, body=_Counting(function).region(function.body))


# ------------------------------------------------------------------- products


def _mapped(region: Region, change: Callable[[Op], Iterable[Op]]) -> Region:
    blocks = []
    for block in region.blocks:
        ops: list[Op] = []
        for op in block.ops:
            inner = tuple(_mapped(each, change) for each in op.regions)
            ops.extend(change(replace(op, regions=inner) if inner else op))
        blocks.append(replace(block, ops=tuple(ops)))
    return Region(tuple(blocks))


def _widened(op: Op) -> Iterable[Op]:
    """Yield a product whose operands are as wide as the sum: the loop that loads them converts them."""
    if op.name != "tt.dot":
        yield op
        return
    left, right, sum_ = op.operands
    assert isinstance(left.type, Tensor)
    assert isinstance(sum_.type, Tensor)
    assert isinstance(sum_.type.element, Scalar)
    total = sum_.type.element
    wide = total if total.is_integer or total.bits >= 32 else _F32
    if total == _F32:
        # Half sums have instructions of their own.
        formats = tuple(_format(op, value) for value in (left, right))
        op = replace(op, attributes={**op.attributes, "loom.formats": formats})
    operands = []
    for value in (left, right):
        assert isinstance(value.type, Tensor)
        assert isinstance(value.type.element, Scalar)
        kind = value.type.element
        if kind.name != wide.name:
            name = "arith.extsi" if wide.is_integer else "arith.extf"
            if kind.name.startswith("f8") or (wide.is_float and kind.bits > wide.bits):
                name = "tt.fp_to_fp"
            value = yield from _converted(op, name, value, wide)
        elif kind == _F32 and op.attributes.get("inputPrecision") == "tf32":
            value = yield from _converted(op, "loom.tf32", value, wide)
        operands.append(value)
    if total != wide:
        sum_ = yield from _converted(op, "arith.extf", sum_, wide)
        result = Value(f"{op.result.name}_wide", sum_.type)
        yield replace(op, operands=(*operands, sum_), results=(result,))
        yield Op("arith.truncf", (result,), op.results, {}, (), op.place)
        return
    yield replace(op, operands=(*operands, sum_))


def _format(op: Op, operand: Value) -> str:
    """Return what an operand of a product is to a GPU's matrix instructions: its element, or TF32."""
    element = element_of(operand.type)
    assert isinstance(element, Scalar)
    return str(op.attributes.get("inputPrecision", "ieee")) if element == _F32 else element.name


def _converted(op: Op, name: str, value: Value, to: Scalar) -> Generator[Op, None, Value]:
    assert isinstance(value.type, Tensor)
    result = Value(f"{value.name}_wide", Tensor(value.type.shape, to))
    yield Op(name, (value,), (result,), {}, (), op.place)
    return result


# ---------------------------------------------------------------------- loops


class _Counting:
    """Makes blocks that a loop only adds to out of what they begin with and a counted number.

    ``pointers += BLOCK * stride`` carries a block of addresses from turn to turn. As ``pointers + n`` with a
    number n that is carried, each address is known to lie beside the next.
    """

    def __init__(self, function: Function) -> None:
        self._makers = {result: op for op in function.walk() for result in op.results}

    def region(self, region: Region) -> Region:
        return Region(tuple(self._block(block) for block in region.blocks))

    def _block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if op.name == "scf.for":
                ops.extend(self._loop(op))
            elif op.regions:
                ops.append(replace(op, regions=tuple(self.region(region) for region in op.regions)))
            else:
                ops.append(op)
        return replace(block, ops=tuple(ops))

    def _loop(self, op: Op) -> Iterable[Op]:
        body = op.regions[0].only
        arguments, results = list(body.arguments), list(op.results)
        begins, ends = list(op.operands), list(body.ops[-1].operands)
        head: list[Op] = []
        tail: list[Op] = []
        after: list[Op] = []
        for number, argument in enumerate(body.arguments[1:]):
            steps = self._steps(argument, ends[number])
            if steps is None:
                continue
            begin, result = begins[number + 3], results[number]
            element = element_of(argument.type)
            wide = element if isinstance(element, Scalar) else _I64
            zero, counted, total = (
                Value(f"{argument.name}_{name}", wide) for name in ("zero", "count", "end")
            )
            yield Op("arith.constant", (), (zero,), {"value": 0}, (), op.place)
            head.extend(_moved(op, begin, counted, argument))
            after.extend(_moved(op, begin, total, result))
            arguments[number + 1], begins[number + 3], results[number] = counted, zero, total
            for step in steps:
                each, made = self._number(step, op, wide)
                sum_ = Value(f"{argument.name}_sum", wide)
                tail += [*made, Op("arith.addi", (counted, each), (sum_,), {}, (), op.place)]
                counted = sum_
            ends[number] = counted
        last = replace(body.ops[-1], operands=tuple(ends))
        changed = Block(body.label, tuple(arguments), (*head, *body.ops[:-1], *tail, last))
        region = self.region(Region((changed,)))
        yield replace(op, operands=tuple(begins), results=tuple(results), regions=(region,))
        yield from after

    def _steps(self, argument: Value, end: Value) -> list[Value] | None:
        """Return the blocks of one number that a turn adds to what it carries; None if it does else."""
        kind = argument.type
        if not isinstance(kind, Tensor):
            return None
        if isinstance(kind.element, Scalar) and (not kind.element.is_integer or kind.element.bits == 1):
            return None
        steps = []
        value = end
        while value is not argument:
            maker = self._makers.get(value)
            if maker is None or maker.name not in _ADDITIONS:
                return None
            first, second = maker.operands
            if not self._leads_to(first, argument):
                first, second = second, first
            if not self._is_splat(second):
                return None
            steps.append(second)
            value = first
        return steps or None

    def _leads_to(self, value: Value, argument: Value) -> bool:
        while value is not argument:
            maker = self._makers.get(value)
            if maker is None or maker.name not in _ADDITIONS:
                return False
            value = maker.operands[0]
        return True

    def _is_splat(self, value: Value) -> bool:
        maker = self._makers.get(value)
        if maker is None:
            return False
        constant = maker.attributes.get("value")
        return maker.name == "tt.splat" or (isinstance(constant, Dense) and constant.is_splat)

    def _number(self, value: Value, op: Op, wide: Scalar) -> tuple[Value, list[Op]]:
        """Return the number that all elements of a block are, as wide as asked, and the ops that make it."""
        maker = self._makers[value]
        made = []
        if maker.name == "tt.splat":
            number = maker.operands[0]
        else:
            number = Value(f"{value.name}_number", element_of(value.type))
            constant = {"value": maker.attributes["value"].values[0]}
            made.append(Op("arith.constant", (), (number,), constant, (), op.place))
        if number.type != wide:
            extended = Value(f"{value.name}_extended", wide)
            made.append(Op("arith.extsi", (number,), (extended,), {}, (), op.place))
            number = extended
        return number, made


_ADDITIONS = ("tt.addptr", "arith.addi")


def _moved(op: Op, begin: Value, number: Value, result: Value) -> Iterable[Op]:
    """Yield ``result = begin + number``."""
    kind = begin.type
    assert isinstance(kind, Tensor)
    assert isinstance(number.type, Scalar)
    block = Value(f"{number.name}_block", Tensor(kind.shape, number.type))
    yield Op("tt.splat", (number,), (block,), {}, (), op.place)
    name = "tt.addptr" if isinstance(kind.element, Pointer) else "arith.addi"
    yield Op(name, (begin, block), (result,), {}, (), op.place)
