"""Races between threads of a block on shared memory, which `--sanitize` names with both lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "races.cu").read_text(encoding="utf-8")


@pytest.fixture(autouse=True, scope="module")
def _watched() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_LOOM_SANITIZER", "1")
        yield


def kernel(name: str) -> Callable[..., Any]:
    return loom._compile_kernel(SOURCE, name)


def line_of(mark: str) -> int:
    return next(i for i, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {mark}"))


def values() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(64, dtype=torch.int32, device="loom"), torch.zeros(
        64, dtype=torch.int32, device="loom"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_barrier",
            r"thread \(1, 0, 0\) writes 4 bytes.*which thread \(0, 0, 0\) has read at code:{line}",
        ),
        (
            "no_second_barrier",
            r"thread \(0, 0, 0\) writes 4 bytes at code:{line}, which thread \(\d+, 0, 0\) has read at code:",
        ),
        (
            "warp_in_step",
            r"code:{line}, which thread \(\d+, 0, 0\) has (?:read|written) at code:{line}: no barrier",
        ),
        (
            "odd_element",
            r"thread \(63, 0, 0\) reads 4 bytes at code:{line}, which thread \(3, 0, 0\) has written",
        ),
        (
            "last_byte",
            r"thread \(63, 0, 0\) writes 1 bytes at code:{line}, which thread \(7, 0, 0\) has read",
        ),
        # By a function of the headers, whose line is theirs.
        ("zeroed_beside_atomics", r"thread \(1, 0, 0\) writes 4 bytes.*which thread \(0, 0, 0\) has written"),
        (
            "plain_count",
            r"reads 4 bytes at code:{line}, which thread \(\d+, 0, 0\) has written at code:{line}",
        ),
    ],
)
def test_races(name: str, message: str) -> None:
    x, y = values()
    expected = r"(?s)unspecified launch failure.*a race on shared memory: block \(0, 0, 0\), .*"
    with pytest.raises(torch.AcceleratorError, match=expected + message.format(line=line_of(name))) as error:
        kernel(name)((2,), (64,), (x, y), shared_mem=256)
    assert error.value.error_code == 719


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "blocks", "expected"),
    [
        ("barrier", 3, [496] * 64),
        ("second_barrier", 1, [2] * 64),
        ("warp_in_turns", 3, [2016] + [0] * 63),
        ("atomic_count", 3, [55] * 64),
        ("neighbours", 1, [t + 1 for t in range(64)]),
        ("by_shuffles", 3, [0] * 64),
    ],
)
def test_what_is_ordered(name: str, blocks: int, expected: list[int]) -> None:
    # One block where another one would write other values to the same result.
    x, y = values()
    kernel(name)((blocks,), (64,), (x, y), shared_mem=256)
    assert y.tolist() == expected
