"""The ops below torch.nn.SyncBatchNorm, against batch normalisation of the whole batch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

MOMENTUM, EPS = 0.3, 1e-3


def _parts(dtype: torch.dtype) -> list[Tensor]:
    """Return two parts of a batch, of 2 and of 3 elements."""
    torch.manual_seed(0)
    return [torch.randn(count, 3, 4, 2).mul_(2).add_(1).to(dtype) for count in (2, 3)]


def _synchronised(
    parts: list[Tensor], upstream: list[Tensor], weight: Tensor, bias: Tensor, running: tuple[Tensor, Tensor]
) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Return outputs and gradients of the parts, and gradients of weight and bias, as SyncBatchNorm does."""
    stats = [torch.batch_norm_stats(part, EPS) for part in parts]
    counts = torch.tensor([part.numel() / 3 for part in parts], device="loom")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack([s[0] for s in stats]),
        torch.stack([s[1] for s in stats]),
        *running,
        MOMENTUM,
        EPS,
        counts,
    )
    outputs = [torch.batch_norm_elemt(part, weight, bias, mean, invstd, EPS) for part in parts]
    reduced = [
        torch.batch_norm_backward_reduce(up, part, mean, invstd, weight, True, True, True)
        for up, part in zip(upstream, parts, strict=True)
    ]
    sums = sum(r[0] for r in reduced), sum(r[1] for r in reduced)
    gradients = [
        torch.batch_norm_backward_elemt(up, part, mean, invstd, weight, *sums, counts)
        for up, part in zip(upstream, parts, strict=True)
    ]
    return outputs, gradients, reduced[0][2] + reduced[1][2], reduced[0][3] + reduced[1][3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("side", [False, True])
def test_parts_are_normalised_as_one_batch(dtype: torch.dtype, side: bool) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    weight, bias = torch.tensor([1.0, 2.0, -1.0]).to(wide), torch.tensor([0.5, 0.0, 1.0]).to(wide)
    running = torch.zeros(3, dtype=wide), torch.ones(3, dtype=wide)
    parts = _parts(dtype)
    upstream = [torch.randn(part.shape).to(dtype) for part in parts]

    there_running = running[0].to("loom"), running[1].to("loom")
    given = [[x.to("loom") for x in tensors] for tensors in (parts, upstream)]
    there_weight, there_bias = weight.to("loom"), bias.to("loom")
    with torch.loom.stream(torch.loom.Stream() if side else torch.loom.default_stream()):
        outputs, gradients, *own = _synchronised(*given, there_weight, there_bias, there_running)
        torch.loom.synchronize()

    batch = torch.cat(parts).to(wide).requires_grad_()
    weight.requires_grad_()
    bias.requires_grad_()
    expected = F.batch_norm(batch, *running, weight, bias, True, MOMENTUM, EPS)
    wanted = torch.autograd.grad(expected, (batch, weight, bias), torch.cat(upstream).to(wide))
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}

    def check(ours: Tensor, theirs: Tensor) -> None:
        torch.testing.assert_close(ours.cpu().to(wide), theirs.detach(), **tolerance)

    assert {x.dtype for x in (*outputs, *gradients)} == {dtype}
    check(torch.cat(outputs), expected)
    check(torch.cat(gradients), wanted[0])
    check(own[0], wanted[1])
    check(own[1], wanted[2])
    check(there_running[0], running[0])
    check(there_running[1], running[1])


def test_other_forms() -> None:
    part = _parts(torch.float32)[0].to("loom")
    mean, invstd = torch.batch_norm_stats(part, EPS)
    same = torch.batch_norm_gather_stats(
        part, mean[None].expand(2, 3), invstd[None].expand(2, 3), None, None, MOMENTUM, EPS, 16
    )
    torch.testing.assert_close(same, (mean, invstd))
    out = torch.empty(0, device="loom")
    assert torch.ops.aten.batch_norm_elemt.out(part, None, None, mean, invstd, EPS, out=out) is out
    assert torch.equal(out, torch.batch_norm_elemt(part, None, None, mean, invstd, EPS))
    wanted = torch.batch_norm_backward_reduce(part, part, mean, invstd, None, False, False, True)
    assert wanted[:3] == (None, None, None) or not any(x.defined() for x in wanted[:3] if x is not None)
    with pytest.raises(RuntimeError, match="batch_norm_stats: input must be"):
        torch.batch_norm_stats(part[0, 0, 0], EPS)
