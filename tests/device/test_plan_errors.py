"""Errors of a dry run: those of a run, in the same words, though no kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

Call = Callable[[Tensor, Tensor], Any]

# Of tensors of 2 x 3 and 4 x 5 elements.
CALLS: dict[str, Call] = {
    "product": lambda a, b: a @ b,
    "sum": lambda a, b: a + b,
    "in place": lambda a, b: a.add_(b),
    "linear": lambda a, b: functional.linear(b, a),
    "convolution": lambda a, b: functional.conv2d(a.expand(1, 2, 2, 3), b.expand(4, 3, 4, 5)),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "normalisation": lambda a, b: functional.layer_norm(a, b.shape),
    "gather": lambda a, b: a.gather(0, b.long()),
    "choice": lambda a, b: torch.where(a > 0, a, b),
    "largest": lambda a, _: a.topk(9),
    "indices": lambda a, b: a[b[:, 0].long(), b[:3, 0].long()],
    "embedding": lambda a, b: functional.embedding(b, a),
    "mask": lambda a, b: a.masked_fill(b > 0, 1.0),
    "mean": lambda a, _: a.long().mean(),
}


def error_of(call: Call, *operands: Tensor) -> tuple[type, str]:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call(*operands)
    return raised.type, str(raised.value)


@pytest.mark.parametrize("name", CALLS)
def test_errors_are_those_of_a_run(name: str) -> None:
    wanted = error_of(CALLS[name], torch.zeros(2, 3), torch.zeros(4, 5))
    with torch.loom.dry_run(chip="h200", devices=1):
        a, b = torch.zeros(2, 3, device="loom"), torch.zeros(4, 5, device="loom")
        assert error_of(CALLS[name], a, b) == wanted


def test_large_operands_cost_nothing() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        large = torch.empty(1 << 15, 1 << 17, device="loom")
        assert error_of(torch.mm, large, large) == (
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied (32768x131072 and 32768x131072)",
        )
        # What only a kernel could say better is said as ever.
        wide = torch.empty(1 << 15, 1 << 10, device="loom")
        kind, text = error_of(lambda a, b: functional.layer_norm(a, b.shape[:1]), wide, wide)
        assert kind is RuntimeError
        assert "normalized_shape=[32768]" in text


def test_errors_draw_no_random_numbers() -> None:
    before = torch.get_rng_state()
    with torch.loom.dry_run(chip="h200", devices=1):
        a, b = torch.zeros(1, 2, 3, device="loom"), torch.zeros(1, 4, 5, device="loom")
        error_of(lambda a, b: functional.scaled_dot_product_attention(a, b, b, dropout_p=0.5), a, b)
        error_of(lambda a, _: nn.LSTM(7, 2, 2, dropout=0.5, device="loom")(a), a, b)
        error_of(torch.normal, a, b)
    assert torch.equal(torch.get_rng_state(), before)
