"""Adds up results, and sets known failures against what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator

from . import known_failures
from .cases import dtypes_of, ops
from .model import CaseResult, Group, Tally


@dataclasses.dataclass
class Row:
    """Counts of samples over any number of groups. Failures listed in `known_failures.py` are `known`."""

    passed: int = 0
    random: int = 0
    identical: int = 0
    failed: int = 0
    known: int = 0
    cpu_fails: int = 0
    excluded: int = 0

    @property
    def counted(self) -> int:
        """Samples that pass on the CPU and were asked of the device."""
        return self.passed + self.failed + self.known

    @property
    def rate(self) -> float:
        """The share of passes among the samples that pass on the CPU, in percent."""
        return 100 * self.passed / self.counted if self.counted else 100.0

    def add(self, tally: Tally, *, known: bool) -> None:
        self.passed += tally.passed
        self.random += tally.random
        self.identical += tally.identical
        self.failed += 0 if known else tally.failed
        self.known += tally.failed if known else 0
        self.cpu_fails += tally.cpu_fails
        self.excluded += tally.excluded


@dataclasses.dataclass
class OpCounts:
    """How many ops have a sample that passes on the CPU, and how many of them pass with every one."""

    passed: int
    total: int


def groups(results: Iterable[CaseResult]) -> Iterator[tuple[str, Group, Tally]]:
    """Yields (family, group, tally) for everything that was run."""
    for result in results:
        for kind, tally in result.tallies.items():
            yield result.case.family, Group(result.case.op, kind, result.case.dtype), tally


def rows_by_dtype(results: Iterable[CaseResult], family: str, kind: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for of_family, group, tally in groups(results):
        if (of_family, group.kind) == (family, kind):
            known = known_failures.reason_for(*group) is not None
            rows.setdefault(group.dtype, Row()).add(tally, known=known)
    return dict(sorted(rows.items()))


def total(rows: Iterable[Row]) -> Row:
    """Returns the sum of all columns."""
    result = Row()
    for row in rows:
        for field in dataclasses.fields(Row):
            setattr(result, field.name, getattr(result, field.name) + getattr(row, field.name))
    return result


def op_counts(results: Iterable[CaseResult], family: str, kind: str, dtype: str) -> OpCounts:
    tallies = [
        tally
        for of_family, group, tally in groups(results)
        if of_family == family and (group.kind, group.dtype) == (kind, dtype) and tally.counted
    ]
    return OpCounts(sum(not tally.failed for tally in tallies), len(tallies))


def unexpected(results: Iterable[CaseResult]) -> dict[Group, Tally]:
    """Returns the groups that fail and are not listed."""
    return {
        group: tally
        for _, group, tally in groups(results)
        if tally.failed and known_failures.reason_for(*group) is None
    }


def stale(results: Collection[CaseResult], families: Collection[str]) -> list[str]:
    """Returns listed failures that did not happen, among those that this run would have seen."""
    ran = {group: tally for _, group, tally in groups(results)}
    names = {name for family in families for name in ops(family)}
    found = []
    for op, kind, dtype in known_failures.known():
        if op not in names:
            found.append(f"{op} {kind} {dtype}: there is no such op")
            continue
        wanted = [tally for group, tally in ran.items() if (group.op, group.kind) == (op, kind)]
        if dtype != "*":
            if dtype not in _all_dtypes(op, families):
                found.append(f"{op} {kind} {dtype}: the op has no such dtype")
            wanted = [tally for group, tally in ran.items() if group == (op, kind, dtype)]
        found += [f"{op} {kind} {dtype}: passes" for tally in wanted if tally.counted and not tally.failed][
            :1
        ]
    return found


def _all_dtypes(op: str, families: Collection[str]) -> set[str]:
    return {dtype for family in families if op in ops(family) for dtype in (*dtypes_of(ops(family)[op]), "-")}
