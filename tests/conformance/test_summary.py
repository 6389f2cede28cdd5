"""Known failures: they are expected, and they must go when they pass."""

from __future__ import annotations

import pytest

from . import known_failures
from .model import Case, CaseResult, Failure, Tally
from .summary import stale, unexpected

pytestmark = [pytest.mark.conformance, pytest.mark.sample]


def result_of(op: str, *, failures: int) -> CaseResult:
    tally = Tally(identical=1, failures=[Failure("0", "wrong")] * failures)
    return CaseResult(Case("ops", op, "float32"), {"forward": tally})


def test_known_failure_is_expected_and_must_go_when_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {("abs", "forward", "float32"): "why", ("add", "forward", "*"): "why"}
    monkeypatch.setattr(known_failures, "KNOWN_FAILURES", listed)
    failing = [result_of("abs", failures=1), result_of("add", failures=2)]
    assert not unexpected(failing)
    assert not stale(failing, ["ops"])
    assert [group.op for group in unexpected([result_of("acos", failures=1)])] == ["acos"]
    assert len(stale([result_of("abs", failures=0), result_of("add", failures=0)], ["ops"])) == 2
    assert not stale([], ["ops"])


def test_known_failure_of_an_op_that_does_not_exist_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {("no_such_op", "forward", "*"): "why", ("abs", "forward", "float9"): "why"}
    monkeypatch.setattr(known_failures, "KNOWN_FAILURES", listed)
    assert len(stale([], ["ops"])) == 2
