"""The modes of `modes.py` tell right calls from wrong ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torch_loom.device as loom

from . import modes
from .cases import ops as all_ops
from .measure_modes import ask, cases, conclude, counts_of
from .model import CaseResult, CpuFails, Failure, Mismatch, Tally

COMPILED = (
    *("trace", "make_fx", "capture", "busy"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in modes.COMPILERS),
)


class Call:
    """What the checks need of an OpInfo."""

    full_name = name = "call"
    aten_name = "mm"
    variant_test_name = ""
    is_factory_function = False

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def get_op(self) -> Any:
        return self.function


def asked(mode: str, function: Any, *values: torch.Tensor) -> None:
    given = values or (torch.arange(6.0).reshape(2, 3),)
    sample = SimpleNamespace(input=given[0], args=given[1:], kwargs={})
    modes.check(mode, Call(function), sample, "loom")


@pytest.mark.parametrize("mode", COMPILED)
def test_a_right_call_passes_and_a_wrong_one_does_not(mode: str) -> None:
    asked(mode, lambda x: torch.relu(x) + 1)
    with pytest.raises((AssertionError, Mismatch)):
        asked(mode, lambda x: x + (1 if x.device.type == "cpu" else 2))
    with pytest.raises(Mismatch, match=r"\(3, 2\)"):
        asked(mode, lambda x: x + 1 if x.device.type == "cpu" else (x + 1).T)


@pytest.mark.parametrize("mode", ["trace", "make_fx", "capture"])
def test_values_that_are_baked_in_are_found(mode: str) -> None:
    seen: list[torch.Tensor] = []

    def bakes(x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cpu":
            return x * 2
        seen.append(torch.full_like(x, 3.0))
        return seen[0] * 2

    with pytest.raises((AssertionError, Mismatch)):
        asked(mode, bakes)


def test_a_host_that_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "WAIT_SECONDS", 0.2)

    def waits(x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "loom" and not loom.is_current_stream_capturing():
            loom.current_stream().synchronize()
        return x + 1

    with pytest.raises(Mismatch, match="the host waited"):
        asked("busy", waits)


@pytest.mark.parametrize("mode", ["capture", "busy"])
def test_what_depends_on_values_is_not_asked(mode: str) -> None:
    with pytest.raises(CpuFails, match="depends on values"):
        asked(mode, torch.nonzero)


@pytest.mark.slow
@pytest.mark.parametrize("mode", modes.COMPILERS)
def test_a_sample_of_ops_compiled(mode: str) -> None:
    # `measure_modes --compiled` asks every second op.
    for case in cases("^(mm|softmax|var_mean|index_select|nn.functional.(conv2d|layer_norm|gelu))$"):
        tally = ask(mode, case, "loom")
        assert tally.passed == 1, (case.op, tally)


def test_cast_lists() -> None:
    assert {"conv2d", "addmm", "scaled_dot_product_attention"} <= modes.CAST_LISTS["lower"]
    assert {"exp", "layer_norm"} <= modes.CAST_LISTS["float32"]
    assert "sum" in modes.CAST_LISTS["set_dtype"]
    assert "addcdiv" in modes.CAST_LISTS["widest"]
    asked("autocast", torch.mm, torch.randn(2, 3), torch.randn(3, 4))
    with pytest.raises(Mismatch, match="list lower"):
        asked("autocast", lambda x, y: torch.exp(x @ y), torch.randn(2, 3), torch.randn(3, 4))


def test_the_counts_and_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    (case,) = cases("^mm$")
    died = Tally(failures=[Failure("busy", "the process died")])
    good = {mode: Tally(identical=1) for mode in ("trace", "capture")}
    results = [CaseResult(case, {**good, "forward": died, "make_fx": Tally(cpu_fails=1)})]
    listed = ("trace", "make_fx", "capture", "busy")
    assert conclude(results, listed, is_whole=False, writes=False) == 1
    assert "FAILED mm busy: the process died" in capsys.readouterr().out
    rows = {row[0]: row[1:] for row in counts_of(results, listed)}
    assert rows[modes.MODES["trace"]] == ["1", "0", "0", "100.00%", "0"]
    assert rows[modes.MODES["busy"]] == ["0", "0", "1", "0.00%", "0"]
    assert rows[modes.MODES["make_fx"]] == ["0", "0", "0", "", "1"]


def test_unsigned_integers_have_the_ops_that_they_have_on_cuda() -> None:
    """The device borrows the CPU's kernels: it would have to bring those that only CUDA declares."""
    unsigned = {torch.uint16, torch.uint32, torch.uint64}
    missing = {
        name: sorted(map(str, (set(info.dtypesIfCUDA) & unsigned) - set(info.dtypes)))
        for name, info in all_ops("ops").items()
    }
    assert {name: dtypes for name, dtypes in missing.items() if dtypes} == {}
    assert sum(torch.uint16 in info.dtypesIfCUDA for info in all_ops("ops").values()) > 30
