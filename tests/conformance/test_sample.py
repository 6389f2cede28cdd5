"""A fixed sample of the conformance run, for `make test`: every op, float32 and one other dtype."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .cases import dtypes_of, ops
from .examine import examine
from .known_failures import reason_for
from .model import FAMILIES, NO_DTYPE, Case

SAMPLES = 3
"""Samples of each kind per case: first, last, and the one in the middle."""

pytestmark = [pytest.mark.conformance, pytest.mark.sample, pytest.mark.filterwarnings("ignore")]


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


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The operands are tiny, and sums that are split between threads differ in the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("cases", [pytest.param(cases, id=name) for name, cases in sampled_cases().items()])
def test_op(cases: list[Case]) -> None:
    device = torch._C._get_privateuse1_backend_name()
    failures = []
    for case in cases:
        for kind, tally in examine(case, device, limit=SAMPLES).tallies.items():
            if reason_for(case.op, kind, case.dtype) is None:
                failures += [
                    f"{kind} {case.dtype} sample {failure.sample}: {failure.message}"
                    for failure in tally.failures
                ]
    assert not failures, "\n\n".join(failures)
