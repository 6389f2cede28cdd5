"""How long a launch of a program's own kernel takes: its programs in waves over the cores.

What a program does is known from its outline (torch_loom/kernels/outline.py). How often loops turn follows
from the grid and from the whole numbers that the launch was given. Nothing is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch_loom.chips.cost.formulas import overlapped
from torch_loom.chips.cost.model import CostModel

if TYPE_CHECKING:
    from torch_loom.chips.chip import Chip

# Of how many programs of a grid, and turns of a loop, the work is looked at.
_MOST_PROGRAMS = 24
_MOST_TURNS = 24

# Figures of a GPU's core that descriptions do not have: CUDA C++ Programming Guide, arithmetic instructions:
# of compute capability 9.0 128 results of float32 a cycle, 16 of special functions.
_LANES, _SLOW_LANES = 128.0, 16.0
THREADS_A_WARP = 32
_MOST_BLOCKS_A_CORE = 32
# Of a load that finds nothing in a cache (a microbenchmark's order of magnitude for such chips).
_LATENCY_NS = 600.0
# Products of tiles that do not fill the units: elements of an edge of a tile that its loads amount to. Chosen
# so that tiles of 128 x 128 reach nine tenths.
_EDGE = 7.0
# Of what programs with products read again, how much comes from the cache one by one. Chosen so that products
# of 8192 with tiles of 128 x 256 reach the six tenths of an H100's peak that are usual for them.
_AGAIN = 0.75
# Bytes a cycle out of a core's own cache (NVIDIA A100 Tensor Core GPU Architecture, 2020; as in later ones).
_CORE_CACHE_BYTES = 128.0
# What a thread needs besides blocks.
_SPARE_REGISTERS, _MOST_REGISTERS = 32, 255


class Work(NamedTuple):
    """What a launch does.

    Attributes:
        programs: how many there are.
        read_bytes, written_bytes: of all programs, from wherever.
        operations, slow: results of arithmetic, and of functions that a core has few units for.
        waiting, waiting_slow: those of them that need a product of the same turn.
        products: by dtype and tile (m, n, k) how many of those.
        turns: how many loads wait for one another in the longest program that was looked at.
    """

    programs: int
    read_bytes: float
    written_bytes: float
    operations: float
    slow: float
    waiting: float
    waiting_slow: float
    products: Mapping[tuple[str, int, int, int], float]
    turns: float


class LaunchTime(NamedTuple):
    """Nanoseconds of a launch, those of its parts, and how many programs a core holds at a time."""

    total_ns: float
    compute_ns: float
    memory_ns: float
    latency_ns: float
    moved_bytes: float
    resident: int
    waves: int
    occupancy: float


class Launched(NamedTuple):
    """A kernel as it is launched: its outline, warps of a program, stages of its loops."""

    outline: Mapping[str, Any]
    num_warps: int
    num_stages: int


# By the number that launches name them by on the tape.
_known: dict[int, Launched] = {}


def know(launched: Launched) -> int:
    """Remember a kernel; return the number that its launches have."""
    _known[len(_known) + 1] = launched
    return len(_known)


def known(number: int) -> Launched:
    """Return a kernel by its number."""
    return _known[number]


def work_of(outline: Mapping[str, Any], grid: tuple[int, int, int], numbers: Mapping[int, int]) -> Work:
    """Return what a launch does.

    Args:
        outline: of the kernel.
        grid: how many programs there are in each dimension.
        numbers: the whole numbers that it was given, by their places among its arguments.
    """
    count = math.prod(grid)
    looked_at = min(count, _MOST_PROGRAMS)
    totals: dict[Any, float] = {}
    longest = 0.0
    for place in range(looked_at):
        # The middles of equal parts, so that neither the first programs nor the last decide.
        each = min(count - 1, int((place + 0.5) * count / looked_at))
        program = (each % grid[0], each // grid[0] % grid[1], each // grid[0] // grid[1])
        found = _Evaluation(program, grid, dict(numbers)).run(outline["body"])
        longest = max(longest, found.get("loads", 0.0))
        for key, amount in found.items():
            totals[key] = totals.get(key, 0.0) + amount
    scale = count / looked_at
    products = {key: amount * scale for key, amount in totals.items() if isinstance(key, tuple)}
    return Work(
        count,
        totals.get("read", 0.0) * scale,
        totals.get("written", 0.0) * scale,
        totals.get("operations", 0.0) * scale,
        totals.get("slow", 0.0) * scale,
        totals.get("waiting_operations", 0.0) * scale,
        totals.get("waiting_slow", 0.0) * scale,
        products,
        longest,
    )


class _Evaluation:
    """Runs an outline for one program: whole numbers only; None is one that is not known."""

    def __init__(
        self, program: tuple[int, int, int], grid: tuple[int, int, int], values: dict[int, int | None]
    ) -> None:
        self._program = program
        self._grid = grid
        self._values = values

    def run(self, statements: Sequence[Any]) -> dict[Any, float]:
        found: dict[Any, float] = {}
        for statement in statements:
            kind = statement[0]
            if kind == "set":
                self._set(*statement[1:])
            elif kind == "work":
                _add(found, _amounts(statement[1]), 1.0)
            elif kind == "for":
                _add(found, self._for(*statement[1:]), 1.0)
            elif kind == "if":
                self._if(found, *statement[1:])
            else:
                # A loop that waits, as for a lock, counts once.
                _add(found, self.run(statement[1]), 1.0)
        return found

    def _set(self, result: int, op: str, operands: list[int], number: Any) -> None:
        if op == "get_program_id":
            self._values[result] = self._program[number]
        elif op == "get_num_programs":
            self._values[result] = self._grid[number]
        elif op == "constant":
            self._values[result] = number
        else:
            given = [self._values.get(operand) for operand in operands]
            self._values[result] = _computed(op, given, number)

    def _if(self, found: dict[Any, float], condition: int, then: list[Any], otherwise: list[Any]) -> None:
        known_ = self._values.get(condition)
        if known_ is not None:
            _add(found, self.run(then if known_ else otherwise), 1.0)
            return
        for part in (then, otherwise):
            _add(found, self.run(part), 0.5)

    def _for(
        self,
        index: int,
        low: int,
        high: int,
        step: int,
        carried: list[list[int]],
        body: list[Any],
        ends: list[int],
    ) -> dict[Any, float]:
        first, last, by = (self._values.get(each) for each in (low, high, step))
        if first is None or last is None or not by:
            turns, first, by = 1, first or 0, by or 1
        else:
            turns = max(0, -((first - last) // by)) if by > 0 else 0
        found: dict[Any, float] = {}
        for value, begin in carried:
            self._values[value] = self._values.get(begin)
        follows = turns <= _MOST_TURNS
        looked_at = turns if follows else _MOST_TURNS
        for place in range(looked_at):
            turn = place if follows else int((place + 0.5) * turns / looked_at)
            self._values[index] = first + turn * by
            _add(found, self.run(body), turns / looked_at)
            after = [self._values.get(each) if follows else None for each in ends]
            for (value, _), end in zip(carried, after, strict=True):
                self._values[value] = end
        return found


def _amounts(work: Mapping[str, Any]) -> dict[Any, float]:
    found: dict[Any, float] = {key: amount for key, amount in work.items() if key != "products"}
    for dtype, m, n, k, batch in work.get("products", ()):
        key = (dtype, m, n, k)
        found[key] = found.get(key, 0.0) + batch
    return found


def _add(found: dict[Any, float], more: Mapping[Any, float], times: float) -> None:
    for key, amount in more.items():
        found[key] = found.get(key, 0.0) + amount * times


def _quotient(a: int, b: int) -> int | None:
    return None if b == 0 else int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


_COMPUTED: Mapping[str, Callable[[int, int], int | None]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _quotient,
    "divui": _quotient,
    "ceildivsi": lambda a, b: None if b == 0 else -(-a // b),
    "floordivsi": lambda a, b: None if b == 0 else a // b,
    "remsi": lambda a, b: None if b == 0 else int(math.fmod(a, b)),
    "remui": lambda a, b: None if b == 0 else a % b,
    "minsi": min,
    "minui": min,
    "maxsi": max,
    "maxui": max,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "shli": lambda a, b: a << b if 0 <= b < 64 else None,
    "shrsi": lambda a, b: a >> b if 0 <= b < 64 else None,
    "shrui": lambda a, b: a >> b if 0 <= b < 64 else None,
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _computed(op: str, given: list[int | None], number: Any) -> int | None:
    if op == "select":
        if given[0] is None:
            return None
        return given[1] if given[0] else given[2]
    if any(each is None for each in given):
        return None
    values = [each for each in given if each is not None]
    if op == "cmpi":
        return int(_COMPARED[number if len(number) == 2 else number[1:]](values[0], values[1]))
    if op in _COMPUTED:
        return _COMPUTED[op](values[0], values[1])
    return values[0]  # of another width


def resident_programs(launched: Launched, chip: Chip) -> int:
    """Return how many programs a core holds at a time, by threads, registers and shared memory."""
    threads = launched.num_warps * THREADS_A_WARP
    bounds = [_MOST_BLOCKS_A_CORE]
    if chip.max_threads_per_core:
        bounds.append(chip.max_threads_per_core // threads)
    if chip.registers_per_core:
        registers = _SPARE_REGISTERS + launched.outline["carried_bytes"] / 4 / threads
        bounds.append(int(chip.registers_per_core // (threads * min(registers, _MOST_REGISTERS))))
    shared = launched.outline["shared_bytes"] * max(launched.num_stages - 1, 1)
    if shared and chip.shared_memory_per_core_bytes:
        bounds.append(chip.shared_memory_per_core_bytes // shared)
    return max(1, min(bounds))


def launch_time(
    launched: Launched, work: Work, footprint: tuple[float, float], model: CostModel, chip: Chip
) -> LaunchTime:
    """Return how long a launch takes.

    Args:
        launched: the kernel.
        work: what it does.
        footprint: bytes of the tensors that it reads, and of those that it writes.
        model: of the chip.
        chip: its description.
    """
    rates = model.rates
    resident = resident_programs(launched, chip)
    read, written = min(work.read_bytes, sum(footprint)), min(work.written_bytes, footprint[1])
    moved = read + written
    # What is read again comes from the cache.
    again = max(0.0, work.read_bytes + work.written_bytes - moved)
    none = rates.cache_bytes * rates.cache_none_share
    full = rates.cache_bytes * rates.cache_full_share
    cached = min(1.0, max(0.0, (none - sum(footprint)) / (none - full)))
    memory = moved * (cached / rates.cache_bytes_per_ns + (1 - cached) / rates.dram_bytes_per_ns)
    programs = max(work.programs, 1)
    # What programs read again, and what all read, a core has in its own cache if there is room for it.
    kept = read / programs * resident <= (chip.shared_memory_per_core_bytes or 0)
    if kept and not work.products:
        memory += again / (_CORE_CACHE_BYTES * rates.clock_ghz * rates.cores)
    else:
        memory += again * (_AGAIN if work.products else 1.0) / rates.cache_bytes_per_ns
    core_ns = (work.operations / _LANES + work.slow / _SLOW_LANES) / programs / rates.clock_ghz
    waiting_ns = (work.waiting / _LANES + work.waiting_slow / _SLOW_LANES) / programs / rates.clock_ghz
    products_ns = 0.0
    for (dtype, m, n, k), count in work.products.items():
        rate = rates.flops_per_ns.get(dtype, rates.flops_per_ns["float32"]) / rates.cores
        reached = m * n / ((m + _EDGE) * (n + _EDGE))
        products_ns += 2.0 * m * n * k * count / programs / (rate * reached)
    # A program waits for its product; another one on the core may do something else meanwhile.
    one_ns = max(overlapped(core_ns, products_ns), (waiting_ns + products_ns) / resident)
    # The busiest core has one program more than others where they do not come out even.
    compute = math.ceil(programs / rates.cores) * one_ns
    waves = math.ceil(programs / (rates.cores * resident))
    ahead = max(1, launched.num_stages - 1) if work.products else 1
    latency = waves * max(work.turns, 1.0) * _LATENCY_NS / ahead
    total = rates.launch_ns + overlapped(overlapped(memory, compute), latency)
    threads = chip.max_threads_per_core or resident * launched.num_warps * THREADS_A_WARP
    occupancy = min(1.0, resident * launched.num_warps * THREADS_A_WARP / threads)
    return LaunchTime(total, compute, memory, latency, moved, resident, waves, occupancy)
