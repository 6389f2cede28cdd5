"""What a pipeline did when: the picture of a run and its bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_SPANS = 10_000  # of one stage: a run without end keeps the last ones


@dataclass(frozen=True)
class Span:
    """One piece of work of a stage, in nanoseconds of the host's clock (``time.perf_counter_ns``)."""

    kind: str
    """``F``, ``B``, ``O`` (optimizer) or ``G`` (generate)."""
    microbatch: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Report:
    """The spans of each stage of a pipeline."""

    stages: dict[str, Sequence[Span]]

    @property
    def total_ns(self) -> int:
        """From the first begin to the last end."""
        spans = [span for row in self.stages.values() for span in row]
        return max(s.end_ns for s in spans) - min(s.begin_ns for s in spans) if spans else 0

    @property
    def bubble(self) -> float:
        """The share of time, over all stages, in which a stage had nothing to do (0 to 1)."""
        total = self.total_ns * len(self.stages)
        busy = sum(span.end_ns - span.begin_ns for row in self.stages.values() for span in row)
        return 1 - busy / total if total else 0.0

    def draw(self, width: int = 80) -> str:
        """Return a picture: a row a stage, time from left to right; a dot is time without work."""
        spans = [span for row in self.stages.values() for span in row]
        if not spans:
            return "nothing ran"
        first, total = min(s.begin_ns for s in spans), max(self.total_ns, 1)
        label = max(len(name) for name in self.stages)
        lines = []
        for name, row in self.stages.items():
            filled = [dict[str, float]() for _ in range(width)]
            for span in row:
                _fill(filled, span, first, total)
            cells = [max(cell, key=cell.__getitem__) if cell else "." for cell in filled]
            lines.append(f"{name:<{label}} |{''.join(cells)}|")
        lines.append(f"{'':<{label}}  {total / 1e6:.3f} ms, bubble {self.bubble:.1%}")
        return "\n".join(lines)


def _fill(cells: list[dict[str, float]], span: Span, first: int, total: int) -> None:
    width = len(cells)
    begin, end = (span.begin_ns - first) * width / total, (span.end_ns - first) * width / total
    for column in range(int(begin), min(int(end) + 1, width)):
        share = min(end, column + 1) - max(begin, column)
        if share > 0:
            cells[column][span.kind] = cells[column].get(span.kind, 0) + share
