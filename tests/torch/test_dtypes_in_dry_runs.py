"""A device that computes nothing refuses the dtypes that its kernels would, in their words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

Call = Callable[[], object]

F32, F64, LONG, INT = torch.float32, torch.float64, torch.int64, torch.int32


def t(*sizes: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.zeros(sizes, dtype=dtype, device="loom")


def in_other_dtype(module: nn.Module) -> nn.Module:
    return module.to("loom").double()


REFUSED: dict[str, Call] = {
    "addmm": lambda: torch.addmm(t(4), t(3, 5), t(5, 4, dtype=F64)),
    "addmm, bias": lambda: torch.addmm(t(4, dtype=F64), t(3, 5), t(5, 4)),
    "addmm_, self": lambda: t(3, 4, dtype=F64).addmm_(t(3, 5), t(5, 4)),
    "mm": lambda: t(3, 5) @ t(5, 4, dtype=F64),
    "mv": lambda: torch.mv(t(3, 5), t(5, dtype=F64)),
    "bmm": lambda: torch.bmm(t(2, 3, 5), t(2, 5, 4, dtype=F64)),
    "dot": lambda: torch.dot(t(5), t(5, dtype=F64)),
    "linear": lambda: functional.linear(t(3, 5), t(4, 5, dtype=F64)),
    "linear, bias": lambda: functional.linear(t(3, 5), t(4, 5), t(4, dtype=F64)),
    "linear, bias of three dimensions": lambda: functional.linear(t(2, 3, 5), t(4, 5), t(4, dtype=F64)),
    "addbmm": lambda: torch.addbmm(t(3, 4, dtype=F64), t(2, 3, 5), t(2, 5, 4)),
    "baddbmm": lambda: torch.baddbmm(t(2, 3, 4, dtype=F64), t(2, 3, 5), t(2, 5, 4)),
    "addmv": lambda: torch.addmv(t(3, dtype=F64), t(3, 5), t(5)),
    "conv2d": lambda: functional.conv2d(t(1, 3, 8, 8), t(4, 3, 3, 3, dtype=F64)),
    "conv2d, bias": lambda: functional.conv2d(t(1, 3, 8, 8), t(4, 3, 3, 3), t(4, dtype=F64)),
    "conv_transpose2d": lambda: functional.conv_transpose2d(t(1, 3, 8, 8), t(3, 4, 3, 3, dtype=F64)),
    "batch_norm": lambda: in_other_dtype(nn.BatchNorm2d(3))(t(2, 3, 4, 4)),
    "batch_norm, statistics": lambda: functional.batch_norm(t(2, 3), t(3, dtype=F64), t(3, dtype=F64)),
    "layer_norm": lambda: in_other_dtype(nn.LayerNorm(8))(t(2, 8)),
    "group_norm": lambda: in_other_dtype(nn.GroupNorm(2, 4))(t(2, 4, 6)),
    "cdist": lambda: torch.cdist(t(3, 4), t(5, 4, dtype=F64)),
    "index_add": lambda: t(3, 4).index_add(0, t(2, dtype=LONG), t(2, 4, dtype=F64)),
    "index_copy": lambda: t(3, 4).index_copy(0, t(2, dtype=LONG), t(2, 4, dtype=F64)),
    "index_put": lambda: t(3, 4).index_put_((t(2, dtype=LONG),), t(4, dtype=F64)),
    "scatter": lambda: t(3, 4).scatter(0, t(2, 4, dtype=LONG), t(2, 4, dtype=F64)),
    "scatter_add": lambda: t(3, 4).scatter_add(0, t(2, 4, dtype=LONG), t(2, 4, dtype=F64)),
    "cross": lambda: torch.linalg.cross(t(2, 3), t(2, 3, dtype=INT)),
    "grid_sample": lambda: functional.grid_sample(
        t(1, 1, 4, 4), t(1, 2, 2, 2, dtype=F64), align_corners=False
    ),
    "binary_cross_entropy": lambda: functional.binary_cross_entropy(t(4), t(4, dtype=F64)),
    "mse_loss": lambda: functional.huber_loss(t(4, dtype=LONG), t(4, dtype=LONG)),
    "nll_loss, weight": lambda: functional.nll_loss(t(3, 5), t(3, dtype=LONG), t(5, dtype=F64)),
    "nll_loss, target": lambda: functional.nll_loss(t(3, 5), t(3, dtype=INT)),
    "cross_entropy, target": lambda: functional.cross_entropy(t(3, 5), t(3, dtype=INT)),
    "multi_margin_loss": lambda: functional.multi_margin_loss(t(3, 5), t(3, dtype=INT)),
    "polar": lambda: torch.polar(t(3), t(3, dtype=F64)),
    "polar of integers": lambda: torch.polar(t(3, dtype=LONG), t(3, dtype=LONG)),
    "complex": lambda: torch.complex(t(3), t(3, dtype=F64)),
    "lerp": lambda: torch.lerp(t(3), t(3, dtype=F64), 0.5),
    "index_select": lambda: t(3, 4).index_select(0, t(2)),
    "gather": lambda: t(3, 4).gather(0, t(2, 4)),
    "take": lambda: t(3, 4).take(t(2)),
    "embedding": lambda: functional.embedding(t(3), t(5, 2)),
    "embedding_bag": lambda: functional.embedding_bag(t(3, 2), t(5, 2)),
    "embedding_dense_backward": lambda: torch.ops.aten.embedding_dense_backward(t(3, 2), t(3), 5, -1, False),
    "one_hot": lambda: functional.one_hot(t(3, dtype=INT), 4),
    "searchsorted": lambda: torch.searchsorted(t(3, dtype=torch.cfloat), t(3, dtype=torch.cfloat)),
    "masked_scatter": lambda: t(3).masked_scatter(t(3, dtype=torch.bool), t(3, dtype=F64)),
    "cholesky_solve": lambda: torch.cholesky_solve(t(3, 3), t(3, 3, dtype=F64)),
    "solve": lambda: torch.linalg.solve(torch.eye(3, device="loom"), t(3, dtype=F64)),
    "lstm": lambda: nn.LSTM(3, 4).to("loom")(t(5, 2, 3, dtype=F64)),
    "prelu": lambda: functional.prelu(t(3), t(1, dtype=F64)),
    "gelu of integers": lambda: functional.gelu(t(3, dtype=LONG)),
    "avg_pool2d of integers": lambda: functional.avg_pool2d(t(1, 4, 4, dtype=INT), 2),
    "gcd": lambda: torch.gcd(t(3, dtype=LONG), t(3)),
    "max_unpool2d of integers": lambda: functional.max_unpool2d(
        t(1, 2, 2, dtype=LONG), t(1, 2, 2, dtype=LONG), 2
    ),
    "sdpa": lambda: functional.scaled_dot_product_attention(
        t(1, 2, 4, 8), t(1, 2, 4, 8, dtype=F64), t(1, 2, 4, 8)
    ),
}


def refusal(call: Call) -> tuple[type[BaseException], str]:
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError)) as caught:
        call()
    return caught.type, str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_the_kernel(name: str) -> None:
    real = refusal(REFUSED[name])
    with torch.loom.dry_run(devices=1):
        assert refusal(REFUSED[name]) == real


def test_sizes_do_not_matter() -> None:
    """Operands that no host should multiply are refused as small ones are."""

    def linear(size: int) -> Tensor:
        x = torch.empty(size, size, dtype=torch.bfloat16, device="loom")
        return functional.linear(x, torch.empty(size, size, dtype=torch.bfloat16, device="loom"), t(size))

    def table(size: int) -> Tensor:
        grid = torch.empty(size, 512, device="loom")
        return functional.embedding(torch.empty(8, 2048, device="loom"), grid)

    for call in (linear, table):
        real = refusal(lambda: call(8))  # noqa: B023 (called at once)
        with torch.loom.dry_run(chip="h200", devices=1):
            assert refusal(lambda: call(1 << 15)) == real  # noqa: B023


TAKEN: dict[str, Call] = {
    "add": lambda: t(3) + t(3, dtype=F64),
    "where": lambda: torch.where(t(3, dtype=torch.bool), t(3), t(3, dtype=F64)),
    "integers by zero": lambda: t(3, dtype=LONG) // t(3, dtype=LONG),
    "a matrix of zeros": lambda: torch.linalg.cholesky(t(3, 3)),
    "layer_norm of halves": lambda: functional.layer_norm(t(2, 8, dtype=torch.bfloat16), [8], t(8), t(8)),
    "gradient of layer_norm of halves": lambda: functional.layer_norm(
        t(2, 8, dtype=torch.bfloat16).requires_grad_(),
        [8],
        t(8, dtype=torch.bfloat16).requires_grad_(),
        t(8, dtype=torch.bfloat16),
    ).backward(t(2, 8, dtype=torch.bfloat16)),
    "embedding": lambda: functional.embedding(t(3, dtype=INT), t(5, 2)),
    "a large product": lambda: (
        torch.empty(1 << 15, 1 << 15, device="loom") @ torch.empty(1 << 15, 1 << 15, device="loom")
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_values_may_decide_is_taken(name: str) -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        TAKEN[name]()
