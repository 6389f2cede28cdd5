"""Part of the operator database on a side stream, where ops are queued; `--stream side` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from .cases import ops
from .model import FAMILIES, Case
from .runner import run_cases
from .worker import Setup

EVERY = 6
"""One op of so many is run."""

SAMPLES = 2
KINDS = ("forward", "inplace", "out", "gradient")

pytestmark = [pytest.mark.conformance, pytest.mark.sample]


@pytest.mark.timeout(300)
def test_queued_ops_give_what_the_cpu_gives(tmp_path: Path) -> None:
    cases = [
        Case(family, name, "float32")
        for family in FAMILIES
        for name, info in list(ops(family).items())[::EVERY]
        if torch.float32 in info.supported_dtypes("cpu")
    ]
    device = torch._C._get_privateuse1_backend_name()
    setup = Setup(device, KINDS, str(tmp_path / "workers.log"), SAMPLES, "side")
    failures = [
        f"{kind} {result.case} sample {failure.sample}: {failure.message}"
        for result in run_cases(cases, setup, 2, lambda result: None)
        for kind, tally in result.tallies.items()
        for failure in tally.failures
    ]
    assert len(cases) > 100
    assert not failures, "\n\n".join(failures)
