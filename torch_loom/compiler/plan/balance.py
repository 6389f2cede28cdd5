"""How many cores an op gets, and which ops are on a chip at once.

An epoch is as slow as its slowest op, so grids are chosen for one target: the least number of cycles that all
ops of the epoch can keep to and still fit the chip. Where epochs end is found by dynamic programming over the
ops in their order.
"""

from __future__ import annotations

import bisect
import functools
import math
import random
from collections.abc import Callable, Sequence

from torch_loom.compiler.plan.model import Edge, Epoch, Grid, Placed, Work
from torch_loom.compiler.plan.pack import pack
from torch_loom.compiler.target import Target
from torch_loom.errors import PlacementError

Choice = tuple[Grid, int, float]
# Tries at a target between the bounds of an epoch's cycles.
SEARCH_STEPS = 10
# Of the cores of a chip, what packing fills on average.
PACKED_SHARE = 0.9
# Epochs are estimated at numbers of cycles that are so far apart.
LEVEL_STEP = 1.05
# What an op that is too slow on any grid is said to need.
TOO_MANY_CORES = 1e6


class Settings:
    """What decides grids.

    Args:
        policy: one of ``BALANCER_POLICIES``.
        one_row: grids have one row.
        may_turn: a grid may be turned where it fits only so.
        retries: whether a failed epoch is tried with smaller grids before it is cut.
        sizes: grids that the user has chosen, by the op's name.
        starts: places that the user has chosen, by the op's name: row and column.
    """

    def __init__(
        self,
        policy: str,
        *,
        one_row: bool,
        may_turn: bool,
        retries: bool,
        sizes: dict[str, Grid] | None = None,
        starts: dict[str, Grid] | None = None,
        turned: frozenset[str] = frozenset(),
    ) -> None:
        self.policy = {"default": "NLP", "CNN": "Ribbon"}.get(policy, policy)
        self.one_row = one_row
        self.may_turn = may_turn
        self.retries = retries
        self.sizes = sizes or {}
        self.starts = starts or {}
        self.turned = turned
        self.random = random.Random(0)


def fill_choices(
    work: Work, target: Target, settings: Settings, cycles: Callable[[int], float], hint: str
) -> None:
    """List the grids that an op can have, with slices in time and cycles of each, the smallest first.

    Raises:
        PlacementError: there is none; the message names op, need, what there is, and what helps.
    """
    grids = _grids(work, target, settings)
    least = math.inf
    for rows, columns in grids:
        cores = rows * columns
        need = sram_need(work, cores, 1)
        t = 1
        while need > target.sram_bytes and t < work.max_t:
            t *= 2
            need = sram_need(work, cores, t)
        least = min(least, need)
        if need <= target.sram_bytes:
            # Each slice starts the pipeline of the op's cores anew.
            work.choices.append(((rows, columns), t, cycles(cores) + 64.0 * (t - 1)))
    if not work.choices:
        raise PlacementError(
            f"{work.name} ({work.kind}) does not fit: it needs {int(least):,} bytes of SRAM on each core, "
            f"even on {max(r * c for r, c in grids)} cores, and there are {target.sram_bytes:,}. {hint}"
        )
    work.choices.sort(key=lambda each: (each[0][0] * each[0][1], each[2], each[0]))


def sram_need(work: Work, cores: int, t: int) -> int:
    """Bytes of each core: parameters, and twice each slice of inputs and results, so that both sides work."""
    return math.ceil((work.parameter_bytes + 2 * (work.input_bytes + work.output_bytes)) / (cores * t))


def _grids(work: Work, target: Target, settings: Settings) -> list[Grid]:
    given = settings.sizes.get(work.name)
    if given is not None:
        if given[0] > target.rows or given[1] > target.columns:
            raise PlacementError(
                f"{work.name}: override_op_size asks for {given[0]} x {given[1]} cores, and a chip has "
                f"{target.rows} x {target.columns}. Choose a smaller grid"
            )
        return [given]
    max_rows = 1 if settings.one_row else min(target.rows, work.tiles[0])
    max_columns = min(target.columns, work.tiles[1])
    if max_rows * max_columns < target.columns and not settings.one_row:
        # Few tiles in one dimension: the inner dimension of a product is split over cores as well.
        max_columns = min(target.columns, work.tiles[0] * work.tiles[1])
    grids = [(r, c) for r in range(1, max_rows + 1) for c in range(1, max_columns + 1)]
    if sram_need(work, max_rows * max_columns, work.max_t) > target.sram_bytes:
        # Its tiles are too few, not its bytes: cores that only hold.
        top = 1 if settings.one_row else target.rows
        grids += [(r, c) for r in range(1, top + 1) for c in range(1, target.columns + 1)]
    return sorted(set(grids))


def epochs_of(
    works: Sequence[Work],
    target: Target,
    settings: Settings,
    breaks: frozenset[str],
    dram: Sequence[float],
    edges: Sequence[Edge],
) -> list[tuple[int, int]]:
    """Return where epochs begin and end: runs of ops, chosen so that the sum of their cycles is least.

    Args:
        breaks: names of ops that begin an epoch.
        dram: cycles that reading each op's parameters takes.
        edges: between the ops; what passes from one epoch to another goes through DRAM.
    """
    n = len(works)
    if settings.policy == "SingleOpPerEpoch" or n == 0:
        return [(i, i + 1) for i in range(n)]
    smallest = [work.choices[0][0][0] * work.choices[0][0][1] for work in works]
    levels, needed = _cores_by_cycles(works, settings)
    crossing = _Crossing(works, edges, target)
    best = [math.inf] * (n + 1)
    best[0], came = 0.0, [0] * (n + 1)
    for i in range(n):
        taken, read, level = 0, 0.0, 0
        crossing.begin(i)
        for j in range(i, n):
            if j > i and works[j].name in breaks:
                break
            taken += smallest[j]
            if taken > target.cores and j > i:
                break
            read += dram[j]
            moved = crossing.add(j)
            # The more ops, the more cycles: the level only rises.
            room = target.cores if j == i else target.cores * PACKED_SHARE
            while level + 1 < len(levels) and needed[level][j + 1] - needed[level][i] > room:
                level += 1
            # A plan of one epoch keeps its parameters, and reads them once.
            through_dram = moved if j - i == n - 1 else read + moved
            cycles = max(levels[level], through_dram)
            # Loading an epoch costs, so fewer of equal time are better.
            if best[i] + cycles * 1.001 + 1000 < best[j + 1]:
                best[j + 1], came[j + 1] = best[i] + cycles * 1.001 + 1000, i
    runs, end = [], n
    while end > 0:
        runs.append((came[end], end))
        end = came[end]
    return runs[::-1]


def _cores_by_cycles(works: Sequence[Work], settings: Settings) -> tuple[list[float], list[list[float]]]:
    """Return rising numbers of cycles, and for each how many cores all ops before each op need to keep to it.

    An op that cannot keep to it needs more cores than there are.
    """
    fixed = settings.policy in ("MinimizeGrid", "MaximizeTMinimizeGrid")
    choices = [work.choices[:1] if fixed else _pareto(work.choices) for work in works]
    low = max(1.0, min(each[-1][2] for each in choices))
    high = max(each[0][2] for each in choices)
    steps = math.ceil(math.log(high / low) / math.log(LEVEL_STEP)) if high > low else 0
    levels = [low * LEVEL_STEP**step for step in range(steps + 1)]
    tables = []
    for cycles in levels:
        total, table = 0.0, [0.0]
        for each in choices:
            grid = next((choice[0] for choice in each if choice[2] <= cycles * LEVEL_STEP), None)
            total += grid[0] * grid[1] if grid else TOO_MANY_CORES
            table.append(total)
        tables.append(table)
    return levels, tables


class _Crossing:
    """Cycles of DRAM that a run of ops takes for data of earlier epochs and for later epochs."""

    def __init__(self, works: Sequence[Work], edges: Sequence[Edge], target: Target) -> None:
        number = {work.name: i for i, work in enumerate(works)}
        self._cycles = [0.0] * len(works)
        self._sources: list[list[int]] = [[] for _ in works]
        self._last = list(range(len(works)))
        for edge in edges:
            producer, consumer = number[edge.producer], number[edge.consumer]
            self._cycles[producer] = max(self._cycles[producer], edge.bytes / target.dram_bytes_per_cycle)
            self._sources[consumer].append(producer)
            self._last[producer] = max(self._last[producer], consumer)

    def begin(self, first: int) -> None:
        """Begin a run at an op."""
        self._first, self._read, self._written = first, 0.0, 0.0
        self._seen: set[int] = set()

    def add(self, number: int) -> float:
        """Add the next op; return the cycles of the run so far."""
        for source in self._sources[number]:
            if source >= self._first:
                if self._last[source] == number and source not in self._seen:
                    self._written -= self._cycles[source]
                    self._seen.add(source)
            elif source not in self._seen:
                self._read += self._cycles[source]
                self._seen.add(source)
        if self._last[number] > number:
            self._written += self._cycles[number]
        return self._read + self._written


def balance_epoch(works: Sequence[Work], target: Target, settings: Settings) -> list[Placed] | None:
    """Choose grids for the ops of an epoch and place them; None: they do not fit the chip together."""
    policy = settings.policy
    if policy in ("MinimizeGrid", "MaximizeTMinimizeGrid"):
        chosen = [work.choices[0] for work in works]
        if policy == "MaximizeTMinimizeGrid":
            chosen = [
                min(work.choices, key=lambda each: (-each[1], each[0][0] * each[0][1])) for work in works
            ]
        return _placed(works, chosen, target, settings)
    if policy == "Random":
        for _ in range(20):
            placed = _placed(
                works, [settings.random.choice(work.choices) for work in works], target, settings
            )
            if placed is not None:
                return placed
        return _placed(works, [work.choices[0] for work in works], target, settings)
    if policy == "Ribbon":
        found = [
            _search(works, target, settings, functools.partial(_has_height, height))
            for height in range(1, target.rows + 1)
        ]
        fitting = [each for each in found if each is not None]
        if fitting:
            return min(fitting, key=_slowest)
    return _search(works, target, settings, lambda grid: True)


def _has_height(height: int, grid: Grid) -> bool:
    return grid[0] == height


def _slowest(placed: Sequence[Placed]) -> float:
    return max(each.cycles for each in placed)


def _search(
    works: Sequence[Work], target: Target, settings: Settings, allowed: Callable[[Grid], bool]
) -> list[Placed] | None:
    """The least target that all ops keep to and still fit, by bisection over the cycles that grids give."""
    fits = [
        [each for each in work.choices if allowed(each[0]) or work.name in settings.sizes] or None
        for work in works
    ]
    if any(fit is None for fit in fits):
        return None
    lists: list[list[Choice]] = [_pareto(fit) for fit in fits if fit is not None]
    levels = sorted({cycles for each in lists for _, _, cycles in each})
    low = bisect.bisect_left(levels, max(each[-1][2] for each in lists))
    high = len(levels) - 1
    best = None
    steps = SEARCH_STEPS if settings.retries else SEARCH_STEPS // 2
    while low <= high and steps > 0:
        steps -= 1
        middle = (low + high) // 2
        chosen = [next(choice for choice in each if choice[2] <= levels[middle]) for each in lists]
        area = sum(rows * columns for (rows, columns), _, _ in chosen)
        placed = _placed(works, chosen, target, settings) if area <= target.cores else None
        if placed is None:
            low = middle + 1
        else:
            best, high = placed, middle - 1
    if best is not None or not settings.retries:
        return best
    return _placed(works, [each[0] for each in lists], target, settings)


def _pareto(choices: Sequence[Choice]) -> list[Choice]:
    """The grids that are faster than every smaller grid; among equals the least square."""
    kept: list[Choice] = []
    for choice in choices:
        if not kept or choice[2] < kept[-1][2]:
            kept.append(choice)
    return kept


def _placed(
    works: Sequence[Work], chosen: Sequence[Choice], target: Target, settings: Settings
) -> list[Placed] | None:
    grids = [
        (c, r) if w.name in settings.turned else (r, c)
        for w, ((r, c), _, _) in zip(works, chosen, strict=True)
    ]
    fixed = [settings.starts.get(work.name) for work in works]
    places = pack(grids, target.rows, target.columns, may_turn=settings.may_turn, fixed=fixed)
    if places is None:
        return None
    placed = []
    for work, (grid, t, cycles), (row, column, turned) in zip(works, chosen, places, strict=True):
        is_turned = turned != (work.name in settings.turned)
        size = (grid[1], grid[0]) if is_turned else grid
        need = sram_need(work, grid[0] * grid[1], t)
        placed.append(Placed(work, row, column, size, t, cycles, is_turned, need))
    return placed


def place_runs(
    works: Sequence[Work], runs: Sequence[tuple[int, int]], target: Target, settings: Settings
) -> list[Epoch]:
    """Balance each run; a run that does not fit is cut in two until it does.

    Raises:
        PlacementError: an op fits no chip even alone.
    """
    epochs: list[Epoch] = []
    waiting = list(runs)[::-1]
    while waiting:
        begin, end = waiting.pop()
        placed = balance_epoch(works[begin:end], target, settings)
        if placed is not None:
            epochs.append(Epoch(len(epochs), 0, placed))
        elif end - begin > 1:
            middle = (begin + end) // 2
            waiting += [(middle, end), (begin, middle)]
        else:
            work = works[begin]
            raise PlacementError(
                f"{work.name} ({work.kind}) cannot be placed: the smallest of its grids is "
                f"{work.choices[0][0][0]} x {work.choices[0][0][1]} cores, and a chip has {target.rows} x "
                f"{target.columns}. Drop its override_op_placement or override_op_size, or allow "
                "enable_auto_transposing_placement"
            )
    return epochs
