"""The operator database issues the same commands under every driver: a dry run plans the real program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

EVERY = 12
"""One op of so many is run where not all are."""

NEEDS_VALUES = "executes nothing"
"""What the null driver says of an op that brings a value to the host."""

# The null driver reads zeros, and then does other things.
OTHER_BRANCH = {"corrcoef", "cov", "masked_scatter", "prod"}
# What they do depends on values that it cannot answer for.
DATA_DEPENDENT = {"to_sparse"}
# PyTorch has no shape function for them, or for their gradient.
SHAPELESS = {
    *("geqrf", "histogram", "histogramdd", "logcumsumexp"),
    *("nn.functional.ctc_loss", "nn.functional.fractional_max_pool3d", "nn.functional.multi_margin_loss"),
    *("nn.functional.multilabel_margin_loss", "sparse.mm.reduce", "sparse.sampled_addmm"),
}


def compare(warm_python: PythonRunner, every: int) -> None:
    code = f"from tests.conformance.commands import main; main({every})"
    virtual, null = (
        json.loads(warm_python(code, {"TORCH_LOOM_DRIVER": driver}).stdout.splitlines()[-1])
        for driver in ("virtual", "null")
    )
    assert virtual.keys() == null.keys()
    assert len(virtual) > 700 / every
    differing = {
        name: (virtual[name], null[name])
        for name in virtual
        if isinstance(null[name], list) and null[name] != virtual[name]
    }
    assert differing.keys() == OTHER_BRANCH & virtual.keys()
    failing = {
        name
        for name in virtual
        if isinstance(null[name], str) and null[name] != virtual[name] and NEEDS_VALUES not in null[name]
    }
    assert failing == (DATA_DEPENDENT | SHAPELESS) & virtual.keys()


def test_some_ops_issue_the_same_commands_under_both_drivers(warm_python: PythonRunner) -> None:
    compare(warm_python, EVERY)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.timeout(400)
def test_all_ops_issue_the_same_commands_under_both_drivers(warm_python: PythonRunner) -> None:
    compare(warm_python, 1)
