"""A fixed sample of the conformance run, for `make test`: every op, float32 and one other dtype."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from .cases import dtypes_of, ops
from .known_failures import reason_for
from .model import FAMILIES, KINDS, NO_DTYPE, Case, CaseResult
from .runner import run_cases
from .worker import Setup

SAMPLES = 3
"""Samples of each kind per case: first, last, and the one in the middle."""

JOBS = 2

Results: TypeAlias = dict[Case, CaseResult]

pytestmark = [pytest.mark.conformance, pytest.mark.sample]


def sampled_cases() -> dict[str, list[Case]]:
    """Returns for each op float32, its error inputs, and another dtype, a different one from op to op."""
    chosen: dict[str, list[Case]] = {}
    for family in FAMILIES:
        for number, (name, info) in enumerate(ops(family).items()):
            dtypes = dtypes_of(info)
            others = [dtype for dtype in dtypes if dtype != "float32"]
            picked = ["float32"] if "float32" in dtypes else []
            picked += [others[number % len(others)]] if others else []
            picked += [NO_DTYPE] if info.error_inputs_func is not None else []
            if picked:
                chosen[name] = [Case(family, name, dtype) for dtype in picked]
    return chosen


SAMPLED = sampled_cases()


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of all selected ops, run at once in two processes; a crash there is a failure here."""
    selected = [
        case
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
        for case in SAMPLED[str(item.callspec.params["op"])]
    ]
    log: Path = tmp_path_factory.mktemp("conformance") / "workers.log"
    device = torch._C._get_privateuse1_backend_name()
    found = run_cases(selected, Setup(device, KINDS, str(log), SAMPLES), JOBS, lambda result: None)
    return {result.case: result for result in found}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("op", SAMPLED)
def test_op(op: str, results: Results) -> None:
    failures = [
        f"{kind} {case.dtype} sample {failure.sample}: {failure.message}"
        for case in SAMPLED[op]
        for kind, tally in results[case].tallies.items()
        if reason_for(op, kind, case.dtype) is None
        for failure in tally.failures
    ]
    assert not failures, "\n\n".join(failures)
