"""Whole numbers and addresses as sums over the indices of a loop.

What is known of an address as ``base + step * i`` is checked at the ends of the loop, and read as neighbours.
Sums are of 64 bits; what holds only if a narrower number did not wrap around is noted as a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch_loom.kernels.emission.types import byte_size
from torch_loom.kernels.ttir.model import Dense, Op, Pointer, Scalar, Tensor, Value, element_of

Number = int | str  # a constant, or the name of an int64_t


class Numbers:
    """Arithmetic with numbers; what is no constant becomes a line of C++."""

    def __init__(self, lines: list[str], new_name: Callable[[str], str]) -> None:
        self._lines = lines
        self._new_name = new_name
        self._known: dict[str, str] = {}

    def named(self, text: str) -> str:
        """Return the name of an int64_t that a text says."""
        if text not in self._known:
            name = self._new_name("n")
            self._lines.append(f"const int64_t {name} = {text};")
            self._known[text] = name
        return self._known[text]

    def add(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        return a if b == 0 else self.named(f"{text(a)} + {text(b)}")

    def subtract(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if a == b:
            return 0
        return a if b == 0 else self.named(f"{text(a)} - {text(b)}")

    def multiply(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        return a if b == 1 else self.named(f"{text(a)} * {text(b)}")

    def least(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return a if a == b else self.named(f"least({text(a)}, {text(b)})")

    def most(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return a if a == b else self.named(f"most({text(a)}, {text(b)})")


def text(number: Number) -> str:
    return f"INT64_C({number})" if isinstance(number, int) else number


@dataclass(frozen=True)
class Linear:
    """``base`` and the sum of ``steps[d]`` times the index of loop d.

    ``is_exact``: it cannot have wrapped around.
    """

    base: Number
    steps: Mapping[int, Number] = field(default_factory=dict, hash=False)
    is_exact: bool = True


@dataclass(frozen=True)
class Index:
    """Where in a dimension of a block: C++ of it, the depth of loops that it needs, its sum if it is one."""

    text: str
    depth: int
    linear: Linear | None


@dataclass(frozen=True)
class Box:
    """The part of a loop where a mask is true: from ``lows[d]`` to ``highs[d]`` in loop d, else all of it."""

    lows: tuple[tuple[int, Number], ...]
    highs: tuple[tuple[int, Number], ...]


class Linears:
    """Finds the sums of one loop.

    Args:
        sizes: how often each loop runs.
        maker: the op that makes a value, where it is computed here; None for what is in a variable or memory.
        number: an int64_t of a number, or of an element in memory that no loop changes; None if none is.
    """

    def __init__(
        self,
        numbers: Numbers,
        sizes: list[int],
        maker: Callable[[Value], Op | None],
        number: Callable[[Value, tuple[Index, ...]], str | None],
    ) -> None:
        self.numbers = numbers
        self.conditions: dict[str, None] = {}
        self._sizes = sizes
        self._maker = maker
        self._number = number
        self._known: dict[tuple[Value, tuple[Index, ...]], Linear | None] = {}

    # ---------------------------------------------------------------- arithmetic

    def add(self, a: Linear, b: Linear, sign: int = 1) -> Linear:
        numbers = self.numbers
        steps = dict(a.steps)
        for loop, step in b.steps.items():
            before = steps.get(loop, 0)
            steps[loop] = numbers.add(before, step) if sign > 0 else numbers.subtract(before, step)
        base = numbers.add(a.base, b.base) if sign > 0 else numbers.subtract(a.base, b.base)
        is_exact = (a == Linear(0) and sign > 0 and b.is_exact) or (b == Linear(0) and a.is_exact)
        return Linear(base, {loop: step for loop, step in steps.items() if step != 0}, is_exact)

    def multiply(self, a: Linear, factor: Number) -> Linear:
        steps = {loop: self.numbers.multiply(step, factor) for loop, step in a.steps.items()}
        steps = {loop: step for loop, step in steps.items() if step != 0}
        return Linear(self.numbers.multiply(a.base, factor), steps, a.is_exact and factor == 1)

    def ends(self, a: Linear, box: Box | None = None) -> tuple[Number, Number]:
        """Return the least and the greatest value; of an empty box, anything."""
        numbers = self.numbers
        least = greatest = a.base
        lows, highs = (dict(box.lows), dict(box.highs)) if box is not None else ({}, {})
        for loop, step in a.steps.items():
            first: Number = lows.get(loop, 0)
            last = numbers.subtract(highs.get(loop, self._sizes[loop]), 1)
            begin, end = numbers.multiply(step, first), numbers.multiply(step, last)
            if isinstance(step, int):
                low, high = (begin, end) if step >= 0 else (end, begin)
            else:
                low, high = numbers.least(begin, end), numbers.most(begin, end)
            least, greatest = numbers.add(least, low), numbers.add(greatest, high)
        return least, greatest

    def _demand(self, condition: str) -> None:
        self.conditions[condition] = None

    def in_range(self, a: Linear, low: int, high: int) -> bool:
        """Demand that it lies in a range; False where it cannot."""
        least, greatest = self.ends(a)
        if isinstance(least, int):
            if least < low:
                return False
        else:
            self._demand(f"{least} >= {_limit(low)}")
        if isinstance(greatest, int):
            return greatest <= high
        self._demand(f"{greatest} <= {_limit(high)}")
        return True

    def _exact(self, a: Linear | None, bits: int, *, is_unsigned: bool = False) -> Linear | None:
        if a is None or (a.is_exact and not is_unsigned):
            return a
        low = 0 if is_unsigned else -(2 ** (bits - 1))
        if bits >= 64 and not is_unsigned:
            return Linear(a.base, a.steps)
        return Linear(a.base, a.steps) if self.in_range(a, low, 2 ** (bits - 1) - 1) else None

    # -------------------------------------------------------------------- values

    def of(self, value: Value, at: tuple[Index, ...]) -> Linear | None:
        """Return an element of a block of whole numbers or addresses as a sum; None if it is none."""
        key = (value, at)
        if key not in self._known:
            self._known[key] = self._of(value, at)
        return self._known[key]

    def exact(self, value: Value, at: tuple[Index, ...]) -> Linear | None:
        """The same, where the number has not wrapped around."""
        element = element_of(value.type)
        return self._exact(self.of(value, at), element.bits if isinstance(element, Scalar) else 64)

    def _of(self, value: Value, at: tuple[Index, ...]) -> Linear | None:
        maker = self._maker(value)
        if maker is None:
            found = self._number(value, at)
            return None if found is None else Linear(found)
        rule = _RULES.get(maker.name)
        return None if rule is None else rule(self, maker, at)

    def _constant(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        value = op.attributes["value"]
        if isinstance(value, Dense):
            if not value.is_splat:
                return None
            value = value.values[0]
        return Linear(int(value)) if isinstance(value, int) else None

    def _range(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        linear = at[0].linear
        if linear is None:
            return None
        return Linear(self.numbers.add(linear.base, op.attributes["start"]), linear.steps)

    def _viewed(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        return self.of(op.operands[0], source_index(op, at, self.numbers)[0])

    def _addi(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        return self._both(op, at, lambda a, b: self.add(a, b))

    def _subi(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        return self._both(op, at, lambda a, b: self.add(a, b, -1))

    def _both(
        self, op: Op, at: tuple[Index, ...], combine: Callable[[Linear, Linear], Linear | None]
    ) -> Linear | None:
        a, b = (self.of(value, at) for value in op.operands)
        return None if a is None or b is None else combine(a, b)

    def _muli(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        def product(a: Linear, b: Linear) -> Linear | None:
            if a.steps and b.steps:
                return None
            return self.multiply(b, a.base) if b.steps else self.multiply(a, b.base)

        return self._both(op, at, product)

    def _shli(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        def product(a: Linear, b: Linear) -> Linear | None:
            is_known = isinstance(b.base, int) and not b.steps and 0 <= b.base < 31
            return self.multiply(a, 1 << b.base) if is_known else None  # type: ignore[operator]

        return self._both(op, at, product)

    def _addptr(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        pointer = element_of(op.operands[0].type)
        assert isinstance(pointer, Pointer)
        a, b = self.of(op.operands[0], at), self.exact(op.operands[1], at)
        return None if a is None or b is None else self.add(a, self.multiply(b, byte_size(pointer.pointee)))

    def _extsi(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        return self.exact(op.operands[0], at)

    def _extui(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        element = element_of(op.operands[0].type)
        assert isinstance(element, Scalar)
        return self._exact(self.of(op.operands[0], at), element.bits, is_unsigned=True)

    def _trunci(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        element = element_of(op.results[0].type)
        assert isinstance(element, Scalar)
        a = self.of(op.operands[0], at)
        if a is None or element.bits < 8:
            return None
        return self._exact(Linear(a.base, a.steps, False), element.bits)

    def _same(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        return self.of(op.operands[0], at)

    def _division(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        """A quotient or a rest, where the block lies between two multiples of the divisor."""
        a, b = (self.exact(value, at) for value in op.operands)
        if a is None or b is None or b.steps:
            return None
        is_rest = op.name.startswith("arith.rem")
        if not a.steps:
            name = "remainder" if is_rest else "quotient"
            return Linear(self.numbers.named(f"{name}<int64_t>({text(a.base)}, {text(b.base)})"))
        length = 1
        for loop, step in a.steps.items():
            length += abs(step) * (self._sizes[loop] - 1) if isinstance(step, int) else 0
        if isinstance(b.base, int) and length > b.base:
            return None
        least, greatest = self.ends(a)
        if is_rest:
            self._demand(f"{text(least)} >= 0 && {text(greatest)} < {text(b.base)}")
            return a
        quotient = self.numbers.named(f"quotient<int64_t>({text(least)}, {text(b.base)})")
        self._demand(
            f"{text(least)} >= 0 && {text(b.base)} > 0 && "
            f"quotient<int64_t>({text(greatest)}, {text(b.base)}) == {quotient}"
        )
        return Linear(quotient)

    def _chosen(self, op: Op, at: tuple[Index, ...]) -> Linear | None:
        """The lesser or greater of a block and a number, where all of the block is on one side."""
        a, b = (self.exact(value, at) for value in op.operands)
        if a is None or b is None:
            return None
        if not a.steps:
            a, b = b, a
        if not a.steps:
            return Linear(
                getattr(self.numbers, "least" if op.name == "arith.minsi" else "most")(a.base, b.base)
            )
        if b.steps:
            return None
        least, greatest = self.ends(a)
        if op.name == "arith.minsi":
            self._demand(f"{text(greatest)} <= {text(b.base)}")
        else:
            self._demand(f"{text(least)} >= {text(b.base)}")
        return a

    # --------------------------------------------------------------------- masks

    def box(self, mask: Value, at: tuple[Index, ...]) -> Box | None:
        """Return where a mask is true, if that is a range of each loop's index; None if it is not."""
        bounds: tuple[dict[int, Number], dict[int, Number]] = ({}, {})
        if not self._bound(mask, at, bounds):
            return None
        for side in bounds:
            for loop, bound in side.items():
                size = self._sizes[loop]
                if not isinstance(bound, int):
                    side[loop] = self.numbers.named(f"kept_in({bound}, 0, {size})")
                else:
                    side[loop] = max(0, min(bound, size))
        return Box(tuple(sorted(bounds[0].items())), tuple(sorted(bounds[1].items())))

    def _bound(
        self, mask: Value, at: tuple[Index, ...], bounds: tuple[dict[int, Number], dict[int, Number]]
    ) -> bool:
        if not self._sizes:
            return False
        maker = self._maker(mask)
        if maker is None:
            flag = self._number(mask, at)
            return flag is not None and self._flag(flag, bounds)
        if maker.name == "arith.andi":
            return all(self._bound(value, at, bounds) for value in maker.operands)
        if maker.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape"):
            return self._bound(maker.operands[0], source_index(maker, at, self.numbers)[0], bounds)
        if maker.name == "arith.constant":
            value = maker.attributes["value"]
            if isinstance(value, Dense):
                if not value.is_splat:
                    return False
                value = value.values[0]
            return bool(value) or self._flag("0", bounds)
        return maker.name == "arith.cmpi" and self._compared(maker, at, bounds)

    def _flag(self, flag: str, bounds: tuple[dict[int, Number], dict[int, Number]]) -> bool:
        last = len(self._sizes) - 1
        self._narrow(bounds[1], last, self.numbers.named(f"({flag}) ? {self._sizes[last]} : 0"), is_low=False)
        return True

    def _narrow(self, side: dict[int, Number], loop: int, bound: Number, *, is_low: bool) -> None:
        if loop in side:
            choose = self.numbers.most if is_low else self.numbers.least
            bound = choose(side[loop], bound)
        side[loop] = bound

    def _compared(
        self, op: Op, at: tuple[Index, ...], bounds: tuple[dict[int, Number], dict[int, Number]]
    ) -> bool:
        predicate = op.attributes["words"][0]
        if predicate not in _SIDES:
            return False
        a, b = (self.exact(value, at) for value in op.operands)
        if a is None or b is None:
            return False
        if predicate.startswith("u"):
            for each in (a, b):
                if not self.in_range(each, 0, 2**62):
                    return False
        # All as a − b < 0.
        is_less, is_strict = _SIDES[predicate]
        difference = self.add(a, b, -1) if is_less else self.add(b, a, -1)
        base = difference.base if is_strict else self.numbers.subtract(difference.base, 1)
        if not difference.steps:
            return self._flag(f"{text(base)} < 0", bounds)
        if len(difference.steps) > 1:
            return False
        ((loop, step),) = difference.steps.items()
        if step == 1:
            self._narrow(bounds[1], loop, self.numbers.subtract(0, base), is_low=False)
        elif step == -1:
            self._narrow(bounds[0], loop, self.numbers.add(base, 1), is_low=True)
        elif isinstance(step, int) and step > 0:
            bound = self.numbers.named(f"-floor_quotient<int64_t>({text(base)}, {step})")
            self._narrow(bounds[1], loop, bound, is_low=False)
        else:
            return False
        return True


def _limit(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


_SIDES = {
    "slt": (True, True),
    "sle": (True, False),
    "sgt": (False, True),
    "sge": (False, False),
    "ult": (True, True),
    "ule": (True, False),
    "ugt": (False, True),
    "uge": (False, False),
}
_RULES: dict[str, Callable[[Linears, Op, tuple[Index, ...]], Linear | None]] = {
    "arith.constant": Linears._constant,
    "tt.make_range": Linears._range,
    "arith.addi": Linears._addi,
    "arith.subi": Linears._subi,
    "arith.muli": Linears._muli,
    "arith.shli": Linears._shli,
    "tt.addptr": Linears._addptr,
    "arith.extsi": Linears._extsi,
    "arith.extui": Linears._extui,
    "arith.trunci": Linears._trunci,
    "arith.index_cast": Linears._same,
    "tt.bitcast": Linears._same,
    "tt.int_to_ptr": Linears._same,
    "tt.ptr_to_int": Linears._same,
    "arith.divsi": Linears._division,
    "arith.remsi": Linears._division,
    "arith.minsi": Linears._chosen,
    "arith.maxsi": Linears._chosen,
    **dict.fromkeys(
        ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape"), Linears._viewed
    ),
}


def source_index(op: Op, at: tuple[Index, ...], numbers: Numbers | None) -> tuple[tuple[Index, ...], int]:
    """Return where the element of a view stands in its operand, and which operand that is."""
    zero = Index("0", 0, Linear(0))
    source = op.operands[0].type
    shape = source.shape if isinstance(source, Tensor) else ()
    if op.name == "tt.splat":
        return (), 0
    if op.name == "tt.broadcast":
        return tuple(zero if size == 1 else each for size, each in zip(shape, at, strict=True)), 0
    if op.name == "tt.expand_dims":
        axis = op.attributes["axis"]
        return at[:axis] + at[axis + 1 :], 0
    if op.name == "tt.trans":
        order = op.attributes["order"]
        found = [zero] * len(order)
        for each, source_dimension in zip(at, order, strict=True):
            found[source_dimension] = each
        return tuple(found), 0
    assert op.name in ("tt.reshape", "tt.unsplat"), op.name
    result = op.results[0].type
    result_shape = result.shape if isinstance(result, Tensor) else ()
    return reshaped(at, result_shape, shape, numbers), 0


def reshaped(
    at: tuple[Index, ...], shape: tuple[int, ...], to: tuple[int, ...], numbers: Numbers | None
) -> tuple[Index, ...]:
    """Return where an element of a block of one shape stands in a block of another."""
    zero = Index("0", 0, Linear(0))
    if [size for size in shape if size != 1] == [size for size in to if size != 1]:
        kept = iter([each for each, size in zip(at, shape, strict=True) if size != 1])
        return tuple(zero if size == 1 else next(kept) for size in to)
    flat, depth = flat_index(at, shape), max((each.depth for each in at), default=0)
    linear: Linear | None = Linear(0)
    stride = 1
    for each, size in zip(reversed(at), reversed(shape), strict=True):
        if linear is None or each.linear is None or not isinstance(each.linear.base, int):
            linear = None
        else:
            steps = dict(linear.steps)
            for loop, step in each.linear.steps.items():
                if not isinstance(step, int):
                    return _divided(flat, depth, None, to)
                before = steps.get(loop, 0)
                assert isinstance(before, int)
                steps[loop] = before + step * stride
            assert isinstance(linear.base, int)
            linear = Linear(linear.base + each.linear.base * stride, steps)
        stride *= size
    return _divided(flat, depth, linear, to)


def _divided(flat: str, depth: int, linear: Linear | None, to: tuple[int, ...]) -> tuple[Index, ...]:
    found = []
    stride = 1
    many = sum(size != 1 for size in to)
    for size in reversed(to):
        if size == 1:
            found.append(Index("0", 0, Linear(0)))
            continue
        each = flat if stride == 1 else f"({flat} / {stride})"
        found.append(Index(flat, depth, linear) if many == 1 else Index(f"({each} % {size})", depth, None))
        stride *= size
    return tuple(reversed(found))


def flat_index(at: tuple[Index, ...], shape: tuple[int, ...]) -> str:
    """Return C++ of where an element stands among all elements of a block."""
    parts = []
    stride = 1
    for each, size in zip(reversed(at), reversed(shape), strict=True):
        if size != 1 and each.text != "0":
            parts.append(each.text if stride == 1 else f"{each.text} * {stride}")
        stride *= size
    return f"({' + '.join(reversed(parts))})" if len(parts) > 1 else parts[0] if parts else "0"
