"""Part of the operator database on the driver of tests/driver/mirror, whose memory only `locate` finds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from .cases import ops
from .model import FAMILIES, Case
from .runner import run_cases
from .worker import Setup

MIRROR = Path(__file__).resolve().parents[2] / "build/temp/libloom_mirror.so"

EVERY = 6
"""One op of so many is run."""

SAMPLES = 2
KINDS = ("forward", "inplace", "out", "gradient")

pytestmark = [pytest.mark.conformance, pytest.mark.sample]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stream", ["default", "side"])
def test_ops_give_what_the_cpu_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    # The workers are processes of their own, which read it; this one has its devices already, or needs none.
    monkeypatch.setenv("TORCH_LOOM_DRIVER", str(MIRROR))
    cases = [
        Case(family, name, "float32")
        for family in FAMILIES
        for name, info in list(ops(family).items())[3::EVERY]
        if torch.float32 in info.supported_dtypes("cpu")
    ]
    device = torch._C._get_privateuse1_backend_name()
    setup = Setup(device, KINDS, str(tmp_path / "workers.log"), SAMPLES, stream)
    failures = [
        f"{kind} {result.case} sample {failure.sample}: {failure.message}"
        for result in run_cases(cases, setup, 2, lambda result: None)
        for kind, tally in result.tallies.items()
        for failure in tally.failures
    ]
    assert len(cases) > 100
    assert not failures, "\n\n".join(failures)
