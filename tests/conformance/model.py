"""What a conformance run is made of: cases, the verdict on a sample, and the tallies that are reported."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

KINDS = ("forward", "inplace", "out", "gradient", "error")
"""The questions asked of an op, in the order in which they are asked and reported."""

FAMILIES = ("ops", "foreach")
"""`ops` is PyTorch's `op_db`, `foreach` its five `foreach_*_op_db` lists together."""

STREAMS = ("default", "side")
"""Where the device runs the samples: its default stream, in place; or one with a worker, queued."""

NO_DTYPE = "-"
"""The dtype of the case that holds an op's error inputs: the database lists those per op, not per dtype."""


class Case(NamedTuple):
    """One op with one dtype: what a worker is given at a time."""

    family: str
    op: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op}[{self.dtype}]"


class Group(NamedTuple):
    """The samples of a case that answer one kind of question: what a known failure names."""

    op: str
    kind: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} {self.kind} {self.dtype}"


class Verdict(enum.Enum):
    """What became of one sample."""

    IDENTICAL = "identical"
    CLOSE = "close"
    RANDOM = "random"
    FAILED = "failed"
    CPU_FAILS = "cpu_fails"
    NOT_APPLICABLE = "not_applicable"


@dataclasses.dataclass
class Failure:
    """One sample that passes on the CPU and not on the device."""

    sample: str
    message: str


@dataclasses.dataclass
class Tally:
    """Counts of the samples of one group.

    `identical`, `close` (within tolerance) and `random` (metadata and repeatability checked, values not
    comparable) have passed. `cpu_fails` were not asked of the device. Every other sample is a failure.
    """

    identical: int = 0
    close: int = 0
    random: int = 0
    cpu_fails: int = 0
    excluded: int = 0
    failures: list[Failure] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> int:
        return self.identical + self.close + self.random

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def counted(self) -> int:
        """Samples that pass on the CPU and were therefore asked of the device."""
        return self.passed + self.failed

    def add(self, verdict: Verdict) -> None:
        if verdict is not Verdict.NOT_APPLICABLE:
            setattr(self, verdict.value, getattr(self, verdict.value) + 1)


@dataclasses.dataclass
class CaseResult:
    """Everything a worker found out about one case."""

    case: Case
    tallies: dict[str, Tally]
    seconds: float = 0.0


class CpuFails(Exception):  # noqa: N818 - a verdict, not an error of ours
    """The CPU itself rejects the sample, so that the device is not asked."""


class Mismatch(Exception):  # noqa: N818
    """The device's answer differs from the CPU's in something other than values."""


class ValueMismatch(Mismatch):
    """Only values differ: a failure, unless the op is random."""
