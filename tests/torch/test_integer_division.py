"""Quotients that no register holds: a GPU wraps around, where the CPU ends the process."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "integer_division"

Divide = Callable[[torch.Tensor, torch.Tensor | int], torch.Tensor]


def truncated(x: torch.Tensor, y: torch.Tensor | int) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="trunc")


def floored(x: torch.Tensor, y: torch.Tensor | int) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="floor")


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("divide", [truncated, floored, torch.floor_divide, operator.ifloordiv])
def test_the_least_number_over_minus_one_is_itself(divide: Divide, dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    several = torch.tensor([-1, -1, 2], dtype=dtype, device="loom")
    for divisor, last in ((-1, least), (several, least // 2)):
        x = torch.tensor([least, 7, least], dtype=dtype, device="loom")
        result = divide(x, divisor)
        assert result.dtype == dtype
        assert result.tolist() == [least, -7, last]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("divide", [torch.remainder, torch.fmod, operator.imod])
def test_nothing_is_left_of_a_division_by_minus_one(divide: Divide, dtype: torch.dtype) -> None:
    x = torch.tensor([torch.iinfo(dtype).min, 7], dtype=dtype, device="loom")
    assert divide(x, -1).tolist() == [0, 0]


@pytest.mark.parametrize("device", ["loom", "cpu"])
def test_a_dividend_of_a_wider_dtype(device: str) -> None:
    """Without dimensions it is narrowed to the divisor's dtype, in which its quotient is none."""
    least = torch.iinfo(torch.int32).min
    x = torch.tensor(least, device=device)
    y = torch.tensor([-1, 2] * 20, dtype=torch.int32, device="loom")
    for divisor in (y, y[::2]):
        result = truncated(x, divisor)
        assert result.dtype == torch.int32
        assert result[0] == least


def test_sparse_dividends() -> None:
    x = torch.tensor([[4, 0], [0, -7]], device="loom")
    assert truncated(x.to_sparse(), -1).to_dense().tolist() == [[-4, 0], [0, 7]]
    x[0, 0] = torch.iinfo(torch.int64).min
    with pytest.raises(RuntimeError, match=r"value -9223372036854775808 and -1 is not a number of Long"):
        truncated(x.to_sparse(), -1)


def signed(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return operands of both signs, the least number and -1 among them."""
    values = torch.tensor(
        [torch.iinfo(dtype).min, -7, -6, -1, 0, 1, 5, 6, torch.iinfo(dtype).max], dtype=dtype
    )
    divisors = torch.tensor([-3, -2, -1, 1, 2, 3], dtype=dtype)
    return values.repeat_interleave(6), divisors.repeat(9)


def all_quotients(x: torch.Tensor, y: torch.Tensor | int) -> list[torch.Tensor]:
    return [divide(x, y) for divide in (truncated, floored, torch.remainder, torch.fmod)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_compiled_quotients_are_those_of_eager_mode(dtype: torch.dtype) -> None:
    torch.compiler.reset()  # recompilations of one function are limited
    x, y = (one.to("loom") for one in signed(dtype))
    compiled = torch.compile(all_quotients)
    for dividend, divisor in ((x, y), (x[0], y[0]), (x, -1), (x, 3), (x, y.to(torch.int64))):
        found, expected = compiled(dividend, divisor), all_quotients(dividend, divisor)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]


@pytest.mark.slow
def test_a_compiled_quotient_by_zero_is_an_error() -> None:
    torch.compiler.reset()
    x = torch.arange(40, device="loom")
    with pytest.raises(RuntimeError, match=r"compiled kernel .* failed: .*integer_div"):
        torch.compile(truncated)(x, x)


def test_a_busy_stream_and_broadcast_operands() -> None:
    least = torch.iinfo(torch.int64).min
    x = torch.tensor([[least], [5]], device="loom")
    y = torch.tensor([-1, 5], device="loom")
    with torch.loom.stream(torch.loom.Stream()):
        result = truncated(x, y)
    torch.loom.synchronize()
    assert result.tolist() == [[least, -(2**63) // 5 + 1], [-5, 1]]


@pytest.mark.long
def test_true_division_by_zero_stays_infinite(fork_python: PythonRunner) -> None:
    """Under the name cuda, too, where whole quotients by zero are some number."""
    fork_python(
        PROGRAMS / "true_division_by_zero_stays_infinite.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"},
    )
