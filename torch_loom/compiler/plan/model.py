"""What a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

Grid = tuple[int, int]
"""Rows and columns of cores."""


@dataclass
class Work:
    """One op of the plan: a node, or several that share its kernel.

    Attributes:
        name, kind: of the node, and the name of its op.
        parts: names of the nodes that run in its kernel, its own first.
        cycles: by number of cores, filled where asked.
        parameter_bytes: read from DRAM, or kept in SRAM as long as the epoch does.
        input_bytes, output_bytes: of activations.
        tiles: rows and columns of tiles of its result: the largest grid that has work.
        max_t: in how many slices in time it may be cut; 1: it may not.
        role: ``"forward"``, or of a training step also ``"backward"`` or ``"optimizer"``.
    """

    name: str
    kind: str
    parts: tuple[str, ...]
    parameter_bytes: int
    input_bytes: int
    output_bytes: int
    tiles: Grid
    shape: tuple[int, ...] = ()
    out_format: str = ""
    fidelity: str = ""
    accumulate: str = ""
    source: str = ""
    max_t: int = 1
    role: str = "forward"
    choices: list[tuple[Grid, int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Edge:
    """Data that one op hands another: ``bytes`` for each run."""

    producer: str
    consumer: str
    bytes: int


@dataclass
class Placed:
    """Where an op runs: the first row and column, the grid, and whether it was turned."""

    work: Work
    row: int
    column: int
    grid: Grid
    t: int
    cycles: float
    transposed: bool = False
    sram_bytes: int = 0


@dataclass
class Epoch:
    """Ops that are on one chip at once."""

    index: int
    chip: int
    placed: list[Placed]
    dram_bytes: int = 0
    dram_cycles: float = 0.0
    cycles: float = 0.0
    fill_cycles: float = 0.0
    """Before all its ops work, and after the first of them has no more to do."""

    @property
    def bound(self) -> str:
        """What bounds it: an op's name, or ``"DRAM"``."""
        slowest = max(self.placed, key=lambda each: each.cycles)
        return slowest.work.name if slowest.cycles >= self.dram_cycles else "DRAM"


@dataclass
class Queue:
    """A buffer in DRAM, in host memory, or between two ops of one epoch.

    Attributes:
        kind: ``"input"``, ``"output"``, ``"parameter"``, ``"epoch"`` (from one epoch to another),
            ``"buffer"`` (between ops of an epoch) or ``"fork"`` (of the short branch of a fork, in DRAM).
        entries: how many results it holds.
        place: ``"dram"``, ``"host"`` or ``"sram"``.
        channel, address: where in DRAM; −1 elsewhere.
        layout: how an input lies in it: ``"tiles"``, ``"row_major"`` or ``"prestrided"``.
    """

    name: str
    kind: str
    producer: str
    consumers: tuple[str, ...]
    bytes: int
    entries: int
    place: str
    chip: int = 0
    channel: int = -1
    address: int = -1
    layout: str = ""


@dataclass
class Plan:
    """Epochs in the order in which they run, edges, and queues."""

    epochs: list[Epoch]
    edges: list[Edge]
    queues: list[Queue]
    num_chips: int
    rows: int
    columns: int

    @property
    def cycles_per_chip(self) -> list[float]:
        """Cycles that each chip is busy for one run."""
        busy = [0.0] * self.num_chips
        for epoch in self.epochs:
            busy[epoch.chip] += epoch.cycles
        return busy

    @property
    def latency_cycles(self) -> float:
        """Cycles from the first op of a run to its last."""
        return sum(epoch.cycles for epoch in self.epochs)

    @property
    def interval_cycles(self) -> float:
        """Cycles between two runs that follow one another: those of the busiest chip."""
        return max(self.cycles_per_chip, default=0.0)
