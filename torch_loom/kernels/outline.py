"""What a program of a kernel does, for the cost model: loops and branches, and what blocks cost in between.

An outline is plain data (lists, texts, numbers), so that it is kept beside the kernel's text. A statement is

- ``["set", result, op, operands, number]``: a whole number from others; ``number`` belongs to the op,
- ``["work", {…}]``: bytes read and written, operations, slow ones, products, loads that wait for one another,
- ``["for", index, low, high, step, carried, body, ends]``, where carried are pairs of a value and its begin,
- ``["if", condition, then, otherwise]``,
- ``["while", body]``.

Values are numbers in the order of their appearance; arguments of the kernel come first.
"""

from __future__ import annotations

import math
from typing import Any

from torch_loom.kernels.emission.types import byte_size
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.ttir.model import (
    Block,
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

# Whole numbers that decide how often loops turn.
_FOLLOWED = {
    *("arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui"),
    *("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui", "arith.andi", "arith.ori", "arith.shli"),
    *("arith.shrsi", "arith.shrui", "arith.cmpi", "arith.select", "arith.extsi", "arith.extui"),
    *("arith.trunci", "arith.index_cast", "arith.constant", "arith.ceildivsi", "arith.floordivsi"),
    *("tt.get_program_id", "tt.get_num_programs"),
}
# Operations that a GPU has few units for.
_SLOW = {
    *("arith.divf", "tt.precise_divf", "tt.precise_sqrt", "tt.extern_elementwise", "arith.remf"),
    *("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"),
}
_AXES = {"x": 0, "y": 1, "z": 2}
_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
}
_MOST_CALLS = 8


def outline_of(module: Module) -> dict[str, Any]:
    """Return the outline of a kernel.

    Returns:
        ``body``, a list of statements; ``numbers``, the places of the arguments that decide how often
        loops turn; ``carried_bytes``, of the blocks that loops carry, and of products that they make besides;
        ``shared_bytes``, of the operands of products.
    """
    return _Outliner(module).outlined()


class _Outliner:
    def __init__(self, module: Module) -> None:
        self._functions = {function.name: function for function in module.functions}
        self._kernel = module.kernel
        self._numbers: dict[Value, int] = {}
        self._makers: dict[Value, Op] = {}
        self._deciding: list[Value] = []
        self._carried_bytes = 0
        self._shared_bytes = 0

    def outlined(self) -> dict[str, Any]:
        for value in self._kernel.arguments:
            self._number(value)
        for function in self._functions.values():
            self._makers.update((result, op) for op in function.walk() for result in op.results)
        body = self._function(self._kernel, 0)
        return {
            "body": body,
            "numbers": self._decisive_arguments(),
            "carried_bytes": self._carried_bytes,
            "shared_bytes": self._shared_bytes,
        }

    def _number(self, value: Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _decisive_arguments(self) -> list[int]:
        found, waiting = set(), list(self._deciding)
        seen: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._kernel.arguments:
                found.add(self._kernel.arguments.index(value))
            maker = self._makers.get(value)
            if maker is not None and maker.name in (*_FOLLOWED, "scf.for", "scf.if"):
                waiting.extend(maker.operands)
        return sorted(found)

    def _function(self, function: Function, depth: int) -> list[Any]:
        # Of several blocks, with jumps between them, each is counted once.
        return [each for block in function.body.blocks for each in self._ops(block.ops, depth)]

    def _region(self, region: Region, depth: int) -> list[Any]:
        return [each for block in region.blocks for each in self._ops(block.ops, depth)]

    def _ops(self, ops: tuple[Op, ...], depth: int) -> list[Any]:
        found: list[Any] = []
        work: dict[str, Any] = {}
        # What waits for a product among these ops.
        behind: set[Value] = set()
        for op in ops:
            if op.name in ("tt.dot", "tt.dot_scaled") or not behind.isdisjoint(op.operands):
                behind.update(op.results)
            if op.name in kinds.TERMINATORS or op.name in kinds.HINTS:
                continue
            if op.name in kinds.CONTROL:
                if work:
                    found.append(["work", work])
                    work = {}
                found += self._control(op, depth)
            elif op.name in _FOLLOWED and all(not isinstance(result.type, Tensor) for result in op.results):
                found.append(self._set(op))
            else:
                self._add(work, op, waits=not behind.isdisjoint(op.operands))
        if work:
            found.append(["work", work])
        return found

    def _set(self, op: Op) -> list[Any]:
        number = 0
        if op.name == "arith.constant":
            value = op.attributes["value"]
            number = int(value) if isinstance(value, int) else None  # type: ignore[assignment]
        elif op.name == "arith.cmpi":
            number = op.attributes["words"][0]
        elif op.name in ("tt.get_program_id", "tt.get_num_programs"):
            words = op.attributes.get("words")
            number = _AXES[words[0]] if words else int(op.attributes["axis"])
        operands = [self._number(operand) for operand in op.operands]
        return ["set", self._number(op.results[0]), op.name.partition(".")[2], operands, number]

    def _control(self, op: Op, depth: int) -> list[Any]:
        if op.name == "tt.call":
            callee = self._functions.get(str(op.attributes.get("callee")))
            if callee is None or depth >= _MOST_CALLS:
                return []
            given = zip(callee.arguments, op.operands, strict=True)
            moved = [["set", self._number(to), "select", [self._number(each)] * 3, 0] for to, each in given]
            return [*moved, *self._function(callee, depth + 1)]
        if op.name == "scf.while":
            return [["while", [each for region in op.regions for each in self._region(region, depth)]]]
        if op.name == "scf.if":
            self._deciding.append(op.operands[0])
            parts = [self._region(region, depth) for region in op.regions]
            return [["if", self._number(op.operands[0]), parts[0], parts[1] if len(parts) > 1 else []]]
        body = op.regions[0].only
        self._deciding += op.operands[:3]
        blocks = [argument.type for argument in body.arguments if isinstance(argument.type, Tensor)]
        carried_bytes = sum(block.size * byte_size(block.element) for block in blocks) + self._made_bytes(
            body
        )
        self._carried_bytes = max(self._carried_bytes, carried_bytes)
        pairs = zip(body.arguments[1:], op.operands[3:], strict=True)
        carried = [[self._number(each), self._number(begin)] for each, begin in pairs]
        ends = [self._number(operand) for operand in body.ops[-1].operands]
        low, high, step = (self._number(operand) for operand in op.operands[:3])
        inner = self._ops(body.ops, depth)
        return [["for", self._number(body.arguments[0]), low, high, step, carried, inner, ends]]

    @staticmethod
    def _made_bytes(body: Block) -> int:
        """Return the bytes of the largest product that a turn makes and uses up, as it is and narrowed.

        Scores of attention are one: they are in registers together with what the loop carries.
        """
        ends = set(body.ops[-1].operands)
        made = [op.result.type for op in body.ops if op.name == "tt.dot" and not ends & set(op.results)]
        return max((each.size * 6 for each in made if isinstance(each, Tensor)), default=0)

    def _add(self, work: dict[str, Any], op: Op, *, waits: bool) -> None:
        def add(key: str, amount: float) -> None:
            if amount:
                work[key] = work.get(key, 0) + amount
            if amount and waits and key in ("operations", "slow"):
                work[f"waiting_{key}"] = work.get(f"waiting_{key}", 0) + amount

        if op.name in kinds.LOADS or op.name in kinds.STORES or op.name in ("tt.atomic_rmw", "tt.atomic_cas"):
            pointer = op.operands[0].type
            element = element_of(pointer)
            assert isinstance(element, Pointer)
            size = _lanes(op.operands[0]) * byte_size(element_of(element.pointee))
            if op.name not in kinds.STORES:
                add("read", size)
                add("loads", 1)
            if op.name not in kinds.LOADS:
                add("written", size)
            add("operations", _lanes(op.operands[0]))
        elif op.name in ("tt.dot", "tt.dot_scaled"):
            self._add_product(work, op)
        elif op.name in ("tt.reduce", "tt.scan", "tt.histogram", "tt.gather"):
            add("operations", 2 * max(_lanes(operand) for operand in op.operands))
        elif op.name not in kinds.VIEWS and op.results and isinstance(op.results[0].type, Tensor):
            is_slow = op.name in _SLOW or (op.name.startswith("math.") and op.name != "math.fma")
            add("slow" if is_slow else "operations", _lanes(op.results[0]))

    def _add_product(self, work: dict[str, Any], op: Op) -> None:
        left, right = op.operands[0].type, op.operands[1].type
        result = op.results[0].type
        assert isinstance(left, Tensor)
        assert isinstance(right, Tensor)
        assert isinstance(result, Tensor)
        assert isinstance(left.element, Scalar)
        dtype = _DTYPES.get(left.element.name, "float8_e4m3fn")
        if dtype == "float32" and op.attributes.get("inputPrecision") == "tf32":
            dtype = "tf32"
        m, n, k = result.shape[-2], result.shape[-1], left.shape[-1]
        batch = math.prod(result.shape[:-2])
        work.setdefault("products", []).append([dtype, m, n, k, batch])
        operands = sum(each.size * byte_size(each.element) for each in (left, right))
        self._shared_bytes = max(self._shared_bytes, operands)


def _lanes(value: Value) -> int:
    return value.type.size if isinstance(value.type, Tensor) else 1
