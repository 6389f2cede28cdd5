"""What the checks must not overlook. Both sides are the CPU here, one of them made wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

from .cases import ops, samples
from .checks import OUT_VARIANTS, Subject, check_forward, check_gradient, check_inplace, check_out
from .model import CpuFails, Mismatch, Verdict
from .move import move

pytestmark = [pytest.mark.conformance, pytest.mark.sample]

Op = Callable[..., Any]

make_sample: Any = SampleInput

DEVICE = "cpu:0"
"""The device examined: the same memory as "cpu", and yet told apart from it by its name."""


@dataclasses.dataclass
class TwoFacedOp:
    """Stands for an OpInfo whose op is `wrong` when it is asked second, which is when the device is."""

    right: Op
    wrong: Op
    calls: int = 0
    full_name: str = "two_faced"
    is_factory_function: bool = True
    has_nondeterministic_output: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return (self.wrong if self.calls == 2 else self.right)(*args, **kwargs)

    def get_inplace(self) -> Op:
        return self


def ask(
    check: Callable[..., Verdict], right: Op, wrong: Op, *more: Any, requires_grad: bool = False
) -> Verdict:
    sample = make_sample(torch.ones(2, 3, requires_grad=requires_grad))
    return check(Subject(TwoFacedOp(right, wrong), DEVICE), sample, *more)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param(lambda x: x + 1, lambda x: (x + 1).flatten(), "shape is", id="shape"),
        pytest.param(lambda x: x + 1, lambda x: (x + 1).double(), "dtype is", id="dtype"),
        pytest.param(lambda x: x + 1, lambda x: (x + 1).t().clone(memory_format=torch.contiguous_format).t(),
                     "strides are", id="strides"),
        pytest.param(lambda x: x + 1, lambda x: x + 1.1, "not close", id="value"),
        pytest.param(lambda x: x + 1, lambda x: x / 0 * 0, "not close", id="nan"),
        pytest.param(lambda x: 1.0, lambda x: 2.0, "value is 2.0", id="number"),
        pytest.param(lambda x: 1, lambda x: True, "type is bool", id="type of a number"),
        pytest.param(lambda x: [x + 1], lambda x: (x + 1,), "structure is", id="structure"),
        pytest.param(lambda x: x.view(6), lambda x: x.view(6).clone(), "share memory", id="view is a copy"),
        pytest.param(lambda x: x, lambda x: x.clone(), "share memory", id="alias is a copy"),
        pytest.param(lambda x: x.clone(), lambda x: x, "share memory", id="copy is an alias"),
        pytest.param(lambda x: x[0], lambda x: x[1], "share memory", id="offset of a view"),
        pytest.param(lambda x: (x * 1j).conj(), lambda x: x * -1j, "is_conj", id="conj"),
        pytest.param(lambda x: x + 1, lambda x: x.add_(1).clone(), "argument", id="extra write"),
        pytest.param(lambda x: x.add_(1).clone(), lambda x: x + 1, "argument", id="missing write"),
    ],
)  # fmt: skip
def test_wrong_answer_is_noticed(right: Op, wrong: Op, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        ask(check_forward, right, wrong)


def test_view_that_is_detached_from_its_memory_is_noticed_by_writing() -> None:
    def detach_argument(x: torch.Tensor) -> torch.Tensor:
        view = x[0]
        with torch.no_grad():
            x.set_(x.clone())  # type: ignore[call-overload]
        return view

    with pytest.raises(Mismatch):
        ask(check_forward, lambda x: x[0], detach_argument)


def test_identical_and_close_values_are_told_apart() -> None:
    assert ask(check_forward, lambda x: x / 3, lambda x: x / 3) is Verdict.IDENTICAL
    assert ask(check_forward, lambda x: x / 3, lambda x: x / 3 * (1 + 2e-7)) is Verdict.CLOSE
    assert ask(check_forward, lambda x: x * torch.nan, lambda x: x * torch.nan) is Verdict.IDENTICAL


def test_sample_that_the_cpu_rejects_is_not_counted() -> None:
    with pytest.raises(CpuFails):
        ask(check_forward, lambda x: x.view(7), lambda x: x)


def test_exception_of_the_device_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        ask(check_forward, lambda x: x, lambda x: 1 // 0)


def test_wrong_inplace_result_is_noticed() -> None:
    assert ask(check_inplace, lambda x: x.add_(1), lambda x: x.add_(1)) is Verdict.IDENTICAL
    with pytest.raises(Mismatch, match="share memory"):
        ask(check_inplace, lambda x: x.add_(1), lambda x: x.add(1))


@pytest.mark.parametrize("variant", OUT_VARIANTS)
def test_out_that_is_not_written_is_noticed(variant: str) -> None:
    info = ops("ops")["mul"]
    sample = next(samples(info, "float32"))
    assert check_out(Subject(info, DEVICE), sample, variant) is Verdict.IDENTICAL
    calls = 0

    def forgets_out(*args: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch.mul(*args, out=out) if calls <= 2 else torch.mul(*args)

    with pytest.raises(Mismatch):
        check_out(Subject(TwoFacedOp(forgets_out, forgets_out), DEVICE), sample, variant)


def test_wrong_gradient_is_noticed() -> None:
    assert ask(check_gradient, torch.exp, torch.exp, requires_grad=True) is Verdict.IDENTICAL
    with pytest.raises(Mismatch, match="not close"):
        ask(check_gradient, torch.exp, lambda x: x.exp() + x - x.detach(), requires_grad=True)
    with pytest.raises(Mismatch, match="structure is"):
        ask(check_gradient, torch.exp, lambda x: x.detach().exp(), requires_grad=True)
    assert ask(check_gradient, torch.exp, torch.exp) is Verdict.NOT_APPLICABLE


def ask_random(on_device: Op) -> Verdict:
    def op(size: int, device: str) -> torch.Tensor:
        return on_device(size) if device == DEVICE else torch.rand(size)

    return check_forward(Subject(TwoFacedOp(op, op), DEVICE), make_sample(9))


def test_random_op_need_not_agree_but_must_repeat_itself() -> None:
    assert ask_random(lambda size: torch.rand(size) / 2) is Verdict.RANDOM
    with pytest.raises(Mismatch, match="other seeds give the same"):
        ask_random(torch.zeros)
    unseeded = torch.Generator()
    with pytest.raises(Mismatch, match="two runs with one seed"):
        ask_random(lambda size: torch.rand(size, generator=unseeded))
    with pytest.raises(Mismatch, match="shape is"):
        ask_random(lambda size: torch.rand(size + 1))


def test_moved_sample_keeps_its_memory_layout() -> None:
    base = torch.arange(12.0).view(3, 4)
    complex_base = torch.randn(3, dtype=torch.complex64)
    given = make_sample(
        base[1:, ::2].requires_grad_(),
        args=(base.t(), [complex_base.conj(), complex_base.conj().imag], torch.ones(1).expand(4)),
        kwargs={"device": "cpu", "dtype": torch.int8},
    )
    moved = move(TwoFacedOp(torch.add, torch.add), given, DEVICE)
    transposed, (conjugate, negative), expanded = moved.args
    for there, here in zip(
        moved.tensors, [given.input, given.args[0], *given.args[1], given.args[2]], strict=True
    ):
        assert torch.equal(there, here)
        assert there.stride() == here.stride()
        assert there.storage_offset() == here.storage_offset()
        assert there.requires_grad == here.requires_grad
        assert there.data_ptr() != here.data_ptr()
    assert conjugate.is_conj()
    assert negative.is_neg()
    assert expanded.untyped_storage().nbytes() == 4
    assert moved.input.untyped_storage().data_ptr() == transposed.untyped_storage().data_ptr()
    assert moved.kwargs == {"device": DEVICE, "dtype": torch.int8}
