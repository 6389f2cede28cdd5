"""Asks all questions about one case, sample by sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

import torch

from . import checks
from .cases import OpInfo, Sample, error_samples, ops, samples
from .checks import Subject
from .known_failures import EXCLUDED
from .model import KINDS, NO_DTYPE, Case, CaseResult, CpuFails, Failure, Mismatch, Tally, Verdict

OUT_SAMPLES = 4
"""How many samples of a case are tried with each way of giving `out=`."""

GRADIENT_DTYPES = ("float32", "float64")

Position: TypeAlias = tuple[str, str]
"""A kind and the name of a sample: where a worker is, and which one to leave out after it died there."""

Observer = Callable[[str, str], None]
Task: TypeAlias = tuple[str, str, Callable[[], Verdict]]


def examine(
    case: Case,
    device: str,
    kinds: Collection[str] = KINDS,
    *,
    skip: Collection[Position] = (),
    observer: Observer = lambda kind, sample: None,
    limit: int | None = None,
    rehearsed: bool = False,
) -> CaseResult:
    """Runs every sample of `case` (evenly spread, at most `limit` of them, if given) and counts what happens.

    `rehearsed` is told to the checks: see `Subject`.
    `observer` is told what is about to run, so that a crash can be blamed; `skip` leaves such samples out.
    """
    started = time.perf_counter()
    info = ops(case.family)[case.op]
    result = CaseResult(case, {})
    for kind, name, check in _tasks(Subject(info, device, rehearsed), case.dtype, kinds, limit):
        tally = result.tallies.setdefault(kind, Tally())
        if (kind, name) in skip:
            continue
        if case.op in EXCLUDED:
            tally.excluded += 1
            continue
        observer(kind, name)
        try:
            tally.add(check())
        except CpuFails:
            tally.cpu_fails += 1
        except Mismatch as error:
            tally.failures.append(Failure(name, str(error)))
        except Exception as error:
            tally.failures.append(Failure(name, f"{type(error).__name__}: {error}"))
    result.seconds = time.perf_counter() - started
    return result


def _tasks(subject: Subject, dtype: str, kinds: Collection[str], limit: int | None) -> Iterator[Task]:
    info = subject.info
    if dtype == NO_DTYPE:
        if "error" in kinds:
            for name, sample in _spread(lambda: error_samples(info), limit):
                yield "error", name, lambda sample=sample: checks.check_error(subject, sample)  # type: ignore[misc]
        return
    for position, (name, sample) in enumerate(_spread(lambda: samples(info, dtype), limit)):
        yield from _sample_tasks(subject, position, name, sample, kinds)
    if "gradient" in kinds and _has_gradient(info, dtype):
        for name, sample in _spread(lambda: samples(info, dtype, requires_grad=True), limit):
            yield "gradient", name, lambda sample=sample: checks.check_gradient(subject, sample)  # type: ignore[misc]


def _sample_tasks(
    subject: Subject, position: int, name: str, sample: Sample, kinds: Collection[str]
) -> Iterator[Task]:
    info = subject.info
    if "forward" in kinds:
        yield "forward", name, lambda: checks.check_forward(subject, sample)
    if "inplace" in kinds and info.get_inplace() is not None:
        yield "inplace", name, lambda: checks.check_inplace(subject, sample)
    if (
        "out" in kinds
        and info.supports_out
        and not info.name.startswith("_foreach")
        and position < OUT_SAMPLES
    ):
        for variant in checks.OUT_VARIANTS:
            yield (
                "out",
                f"{name} {variant}",
                lambda variant=variant: checks.check_out(subject, sample, variant),  # type: ignore[misc]
            )


def _has_gradient(info: OpInfo, dtype: str) -> bool:
    return dtype in GRADIENT_DTYPES and getattr(torch, dtype) in info.supported_backward_dtypes("cpu")


def _spread(make: Callable[[], Iterable[Sample]], limit: int | None) -> Iterator[tuple[str, Sample]]:
    """Yields the samples with their numbers, all of them or `limit` at even distances from first to last."""
    if limit is None:
        for number, sample in enumerate(make()):
            yield str(number), sample
        return
    made = list(make())
    if len(made) <= limit:
        chosen = list(range(len(made)))
    else:
        chosen = sorted({round(i * (len(made) - 1) / max(limit - 1, 1)) for i in range(limit)})
    for number in chosen:
        yield str(number), made[number]
