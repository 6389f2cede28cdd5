"""Orders a function's ops into loops over blocks.

Ops on blocks of one shape are computed in one loop where none needs a whole block that another makes. A block
gets memory only if a later loop reads it. Whole numbers and addresses are computed again wherever they are
used, so that their form as a sum over the indices stays visible; so are reductions of two elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.lowering.once import Bound, run_once
from torch_loom.kernels.lowering.rewrite import rewrite
from torch_loom.kernels.ttir.model import Block, Function, Module, Op, Region, Tensor, Value, shape_of

# Whole numbers that cost more than this many additions get memory instead.
_MOST_WEIGHT = 40


@dataclass(eq=False)
class Nest:
    """One loop over a shape: loads, stores, reductions and blocks that are kept, in their order."""

    shape: tuple[int, ...]
    ops: list[Op]
    kept: set[Value] = field(default_factory=set)


@dataclass(eq=False)
class Alone:
    """An op that runs by itself."""

    op: Op


@dataclass(eq=False)
class Control:
    """A loop, a branch or a call; the plans of its regions."""

    op: Op
    regions: list[list[Plan]]


Step = Nest | Alone | Control


@dataclass(eq=False)
class Plan:
    """A block of a region: its steps in order, and what ends it."""

    block: Block
    steps: list[Step]
    end: Op | None


@dataclass(eq=False)
class LoweredFunction:
    """A function as loops.

    Attributes:
        makers: the op of each value that is no argument.
        inline: values that are computed wherever they are used.
        users: the ops that have a value as an operand.
        in_place: of blocks that a loop carries, those values of a turn, the last one its end, that may have
            the same memory.
    """

    function: Function
    plans: list[Plan]
    makers: dict[Value, Op]
    inline: set[Value]
    users: dict[Value, list[Op]]
    in_place: dict[Value, tuple[Value, ...]]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A module as loops: its functions, and ``once``, its kernel without the loops that have these bounds."""

    functions: tuple[LoweredFunction, ...]
    once: LoweredFunction | None
    bounds: tuple[Bound, ...]


def lower(module: Module) -> Lowered:
    """Return a module as loops."""
    module = rewrite(module)
    once, bounds = run_once(module.kernel) or (None, ())
    return Lowered(
        tuple(_Planner(function).lowered() for function in module.functions),
        None if once is None else _Planner(once).lowered(),
        bounds,
    )


class _Planner:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.makers = {result: op for op in function.walk() for result in op.results}
        self.inline: set[Value] = set()
        self.users: dict[Value, list[Op]] = {}
        for op in function.walk():
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
        self.needs_memory: set[Value] = set()
        self.weights: dict[Value, int] = {}
        for op in function.walk():
            if op.name in kinds.TERMINATORS or op.name == "tt.call" or kinds.runs_alone(op):
                self.needs_memory.update(op.operands)
                for _, values in op.attributes.get("targets", ()):
                    self.needs_memory.update(values)
                for key in ("scale0", "scale1"):
                    if key in op.attributes:
                        self.needs_memory.add(op.attributes[key])
            elif op.name == "scf.for" or op.name == "scf.while":
                self.needs_memory.update(op.operands)
            elif op.name == "tt.gather":
                self.needs_memory.add(op.operands[0])
            elif kinds.is_of_pairs(op):
                # Its elements are read several times.
                self.needs_memory.add(self._source(op.operands[0]))
        # With several blocks, what one computes is used in another.
        self.is_branching = len(function.body.blocks) > 1
        # Where each op is: the nest, or the step.
        self.step_of: dict[Op, Step] = {}
        self._classify(function.body)

    def lowered(self) -> LoweredFunction:
        plans = self._region(self.function.body)
        self._keep(plans)
        return LoweredFunction(
            self.function, plans, self.makers, self.inline, self.users, self._in_place(plans)
        )

    def _source(self, value: Value) -> Value:
        """Return the block whose elements a view of it has, if under another type."""
        maker = self.makers.get(value)
        while maker is not None and len(maker.operands) == 1:
            if maker.name not in kinds.VIEWS and maker.name not in kinds.BITCASTS:
                break
            value = maker.operands[0]
            maker = self.makers.get(value)
        return value

    # --------------------------------------------------------- classification

    def _classify(self, region: Region) -> None:
        for block in region.blocks:
            for op in block.ops:
                if self._is_inline(op):
                    self.inline.update(op.results)
                if op.name not in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
                    for inner in op.regions:
                        self._classify(inner)

    def _is_inline(self, op: Op) -> bool:
        if not any(isinstance(result.type, Tensor) for result in op.results):
            return False
        is_view = op.name in kinds.VIEWS or op.name in kinds.BITCASTS or kinds.is_of_pairs(op)
        if not is_view and not kinds.is_index_math(op):
            return False
        if op.name != "arith.constant" and any(result in self.needs_memory for result in op.results):
            return False
        total = kinds.weight(op) + sum(self.weights.get(value, 0) for value in op.operands)
        if not is_view and total > _MOST_WEIGHT:
            return False
        self.weights.update((result, total) for result in op.results)
        return True

    # -------------------------------------------------------------- scheduling

    def _region(self, region: Region) -> list[Plan]:
        return [self._block(block) for block in region.blocks]

    def _block(self, block: Block) -> Plan:
        steps: list[Step] = []
        segment: list[Op] = []
        end = None
        for op in block.ops:
            if op.name in kinds.TERMINATORS:
                end = op
            elif op.name in kinds.CONTROL:
                steps.extend(self._segment(segment))
                segment = []
                control = Control(op, [self._region(region) for region in op.regions])
                self.step_of[op] = control
                steps.append(control)
            elif op.name not in kinds.HINTS and not self.inline.issuperset(op.results or (None,)):
                segment.append(op)
        steps.extend(self._segment(segment))
        return Plan(block, steps, end)

    def _segment(self, ops: list[Op]) -> list[Step]:
        """Return the steps of ops without control flow."""
        levels = self._earliest(ops)
        self._delay(ops, levels)
        steps: dict[tuple[int, object], Step] = {}
        for op in ops:
            key: tuple[int, object] = (levels[op], op if kinds.runs_alone(op) else loop_shape(op))
            if key not in steps:
                steps[key] = Alone(op) if kinds.runs_alone(op) else Nest(loop_shape(op), [])
            step = steps[key]
            if isinstance(step, Nest):
                step.ops.append(op)
            self.step_of[op] = step
        order = {key: number for number, key in enumerate(steps)}
        return [steps[key] for key in sorted(steps, key=lambda key: (key[0], order[key]))]

    def _earliest(self, ops: list[Op]) -> dict[Op, int]:
        levels: dict[Op, int] = {}
        inside = set(ops)
        loads: list[Op] = []
        stores: list[Op] = []
        for op in ops:
            level = 0
            for maker, is_same in self._needs(op):
                if maker not in inside:
                    continue
                can_join = is_same and not kinds.runs_alone(maker) and not kinds.runs_alone(op)
                if can_join and maker.name != "tt.reduce" and loop_shape(maker) == loop_shape(op):
                    level = max(level, levels[maker])
                else:
                    level = max(level, levels[maker] + 1)
            is_ordered = op.name in kinds.ORDERED or kinds.has_effects(op)
            if op.name in kinds.LOADS or op.name in kinds.STORES or is_ordered:
                for other in stores:
                    joins = op.name in kinds.STORES and other.name in kinds.STORES
                    is_close = joins and loop_shape(other) == loop_shape(op)
                    level = max(level, levels[other] + (not is_close))
                for other in loads if op.name not in kinds.LOADS else ():
                    is_close = not is_ordered and loop_shape(other) == loop_shape(op)
                    level = max(level, levels[other] + (not is_close))
                (loads if op.name in kinds.LOADS else stores).append(op)
            levels[op] = level
        return levels

    def _delay(self, ops: list[Op], levels: dict[Op, int]) -> None:
        """Have loads and arithmetic wait for the first loop that uses them: then they may need no memory."""
        uses: dict[Op, list[tuple[Op, bool]]] = {}
        for op in ops:
            for maker, is_same in self._needs(op):
                uses.setdefault(maker, []).append((op, is_same))
        bound = {}
        latest: dict[object, int] = {}
        for op in reversed(ops):
            if op.name in kinds.LOADS:
                limits = [level if shape == loop_shape(op) else level - 1 for shape, level in latest.items()]
                bound[op] = min(limits, default=len(ops) + 1)
            elif op.name in kinds.STORES or op.name in kinds.ORDERED:
                shape = loop_shape(op) if op.name in kinds.STORES else op
                latest[shape] = min(latest.get(shape, levels[op]), levels[op])
        inside = set(ops)
        for op in reversed(ops):
            if op.name in (*kinds.STORES, *kinds.ORDERED, "tt.reduce") or kinds.runs_alone(op):
                continue
            users = [each for each in uses.get(op, ()) if each[0] in inside]
            if not users or not loop_shape(op) or any(result in self.needs_memory for result in op.results):
                continue
            level = bound.get(op, len(ops) + 1)
            for user, is_same in users:
                joins = is_same and not kinds.runs_alone(user) and loop_shape(user) == loop_shape(op)
                level = min(level, levels[user] if joins else levels[user] - 1)
            levels[op] = max(levels[op], level)

    def _needs(self, op: Op) -> Iterator[tuple[Op, bool]]:
        """Yield the ops whose results an op needs, and whether the element of the same place is enough."""
        values = [*op.operands, *(op.attributes[key] for key in ("scale0", "scale1") if key in op.attributes)]
        # What a combining function reads from around it; the plans of loops and branches have their own ops.
        for inner in op.regions if op.name not in kinds.CONTROL else ():
            for block in inner.blocks:
                values += [value for each in block.ops for deep in each.walk() for value in deep.operands]
        shape = loop_shape(op)
        seen: set[tuple[Value, bool]] = set()
        # A view that is kept, as the transpose of a square block, needs elements of other places.
        is_view = op.name in kinds.VIEWS
        waiting = [(value, shape_of(value.type) == shape and not is_view) for value in values]
        if op.name == "tt.gather":
            waiting[0] = (values[0], False)
        while waiting:
            value, is_same = waiting.pop()
            if (value, is_same) in seen:
                continue
            seen.add((value, is_same))
            maker = self.makers.get(value)
            if maker is None:
                continue
            if value not in self.inline:
                yield maker, is_same
                continue
            is_same = is_same and maker.name not in kinds.VIEWS and maker.name != "tt.reduce"
            waiting.extend((operand, is_same) for operand in maker.operands)

    # ------------------------------------------------------------------ memory

    def _keep(self, plans: list[Plan]) -> None:
        """Find the blocks that are read outside of the loop that makes them."""
        for value in self.needs_memory:
            maker = self.makers.get(value)
            if maker is not None and value not in self.inline:
                self._keep_result(maker, value)
        for plan in plans:
            for step in plan.steps:
                if isinstance(step, Control):
                    for inner in step.regions:
                        self._keep(inner)
                    self._keep_operands(step.op, None)
                elif isinstance(step, Alone):
                    self._keep_operands(step.op, None)
                else:
                    for op in step.ops:
                        self._keep_operands(op, step)
            if plan.end is not None:
                self._keep_operands(plan.end, None)

    def _keep_operands(self, op: Op, step: Step | None) -> None:
        for maker, is_same in self._needs(op):
            if step is None or not is_same or self.step_of.get(maker) is not step:
                for result in maker.results:
                    self._keep_result(maker, result)

    def _keep_result(self, maker: Op, value: Value) -> None:
        step = self.step_of.get(maker)
        if isinstance(step, Nest) and isinstance(value.type, Tensor) and maker.name != "tt.reduce":
            step.kept.add(value)

    def _in_place(self, plans: list[Plan]) -> dict[Value, tuple[Value, ...]]:
        found = {}
        for plan in plans:
            for step in plan.steps:
                if not isinstance(step, Control):
                    continue
                for inner in step.regions:
                    found.update(self._in_place(inner))
                if step.op.name == "scf.for":
                    (body,) = step.regions[0]
                    assert body.end is not None
                    for argument, end in zip(body.block.arguments[1:], body.end.operands, strict=True):
                        chain = self._chain(argument, end, body)
                        if chain:
                            found[argument] = tuple(chain)
        return found

    def _chain(self, argument: Value, end: Value, body: Plan) -> list[Value] | None:
        """Return the values between a carried block and its end, each of which replaces the one before."""
        chain: list[Value] = []
        value = argument
        while value is not end:
            following = self._replacement(value, body)
            if following is None or following in chain:
                return None
            chain.append(following)
            value = following
        return chain if self.users.get(end) == [body.end] else None

    def _replacement(self, value: Value, body: Plan) -> Value | None:
        """Return the block that a step makes when it reads a block for the last time, element by element."""
        users = self.users.get(value, [])
        steps = {self.step_of.get(op) for op in users}
        step = steps.pop() if len(steps) == 1 else None
        if step not in body.steps or not isinstance(value.type, Tensor):
            return None
        if isinstance(step, Alone):
            is_sum = step.op.name == "tt.dot" and step.op.operands.index(value) == 2
            return step.op.result if is_sum else None
        if not isinstance(step, Nest):
            return None
        made = [each for each in step.kept if each.type == value.type]
        if len(made) != 1 or self.makers[made[0]] not in step.ops:
            return None
        last = step.ops.index(self.makers[made[0]])
        for op in users:
            reads_others = op.name in kinds.VIEWS or op.name in ("tt.reduce", "tt.gather", *kinds.ORDERED)
            is_local = not reads_others and loop_shape(op) == step.shape
            # Behind the write, what is read would be the new block.
            if not is_local or step.ops.index(op) > last:
                return None
        return made[0]


def loop_shape(op: Op) -> tuple[int, ...]:
    """Return the shape of the loop that computes an op."""
    if op.name in ("tt.reduce", "tt.store", "tt.print", "tt.assert"):
        shapes = [shape_of(value.type) for value in op.operands]
        return max(shapes, key=len, default=())
    if op.results:
        return shape_of(op.results[0].type)
    return max((shape_of(value.type) for value in op.operands), key=len, default=())
