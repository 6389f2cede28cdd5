"""Attention of packed sequences, which `torch.nn.attention.varlen` has for CUDA alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

PROGRAMS = Path(__file__).parent / "programs" / "packed_attention"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

DTYPE = torch.bfloat16
WIDTH = 16


def packed(rows: int, heads: int, seed: int) -> Tensor:
    return torch.randn(rows, heads, WIDTH, generator=torch.Generator().manual_seed(seed)).to(DTYPE)


def starts(lengths: list[int], device: str = "loom") -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths_q: list[int],
    lengths_k: list[int],
    window: tuple[int, int],
) -> Tensor:
    """Each sequence by itself, in float32."""
    outputs = []
    repeats = query.size(1) // key.size(1)
    sequences = zip(query.split(lengths_q), key.split(lengths_k), value.split(lengths_k), strict=True)
    for own_query, own_key, own_value in sequences:
        q, k, v = (x.float().transpose(0, 1) for x in (own_query, own_key, own_value))
        k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
        scores = q @ k.mT / math.sqrt(WIDTH)
        place = torch.arange(q.size(1))[:, None] + k.size(1) - q.size(1) - torch.arange(k.size(1))
        for limit, beyond in ((window[0], place), (window[1], -place)):
            if limit >= 0:
                scores = scores.masked_fill(beyond > limit, -math.inf)
        outputs.append((torch.softmax(scores, -1).nan_to_num(0) @ v).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0), (2, 1)])
@pytest.mark.parametrize("heads_k", [4, 2])
@pytest.mark.parametrize("lengths_k", [[5, 1, 8], [7, 2, 8]])
def test_output_and_gradients(window: tuple[int, int], heads_k: int, lengths_k: list[int]) -> None:
    lengths_q = [5, 1, 8]
    values = [packed(14, 4, 0), packed(sum(lengths_k), heads_k, 1), packed(sum(lengths_k), heads_k, 2)]
    there = [x.clone().requires_grad_() for x in values]
    here = [x.to("loom").requires_grad_() for x in values]
    wanted = reference(*there, lengths_q, lengths_k, window)
    output = varlen_attn(
        *here,
        starts(lengths_q),
        starts(lengths_k),
        max(lengths_q),
        max(lengths_k),
        window_size=window,
        enable_gqa=heads_k != 4,
    )
    assert output.dtype == DTYPE
    torch.testing.assert_close(output.cpu().float(), wanted, rtol=1e-2, atol=1e-2)
    cotangent = packed(14, 4, 3)
    output.backward(cotangent.to("loom"))
    wanted.backward(cotangent.float())
    for own, other in zip(here, there, strict=True):
        assert own.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(own.grad.cpu().float(), other.grad.float(), rtol=3e-2, atol=3e-2)


def test_a_row_that_sees_no_key_is_zero() -> None:
    query, key = packed(4, 2, 0).to("loom"), packed(2, 2, 1).to("loom")
    output, sums = varlen_attn(
        query, key, key, starts([4]), starts([2]), 4, 2, window_size=(-1, 0), return_aux=AuxRequest(lse=True)
    )
    assert output[:2].abs().sum() == 0
    assert sums.shape == (2, 4)
    assert sums[:, :2].isposinf().all()
    assert sums[:, 2:].isfinite().all()


def test_keys_in_pages_of_a_cache() -> None:
    lengths, page = [3, 6], 4
    query, key, value = packed(2, 2, 0), packed(9, 2, 1), packed(9, 2, 2)
    pages = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
    pool = torch.zeros(2, 4, page, 2, WIDTH, dtype=DTYPE)
    for own, places in zip((0, 1), pages.tolist(), strict=True):
        begin = sum(lengths[:own])
        for row in range(lengths[own]):
            for kind, rows in enumerate((key, value)):
                pool[kind, places[row // page], row % page] = rows[begin + row]
    output = varlen_attn(
        query.to("loom"),
        *pool.to("loom").unbind(),
        starts([1, 1]),
        None,
        1,
        2 * page,
        seqused_k=torch.tensor(lengths, dtype=torch.int32, device="loom"),
        block_table=pages.to("loom"),
    )
    wanted = reference(query, key, value, [1, 1], lengths, (-1, -1))
    torch.testing.assert_close(output.cpu().float(), wanted, rtol=1e-2, atol=1e-2)


def test_the_output_is_given_and_queued() -> None:
    query = packed(6, 2, 0).to("loom")
    out, cumulative = torch.empty_like(query), starts([2, 4])
    stream = torch.loom.Stream()
    with torch.loom.stream(stream):
        varlen_attn_out(out, query, query, query, cumulative, cumulative, 4, 4)
    stream.synchronize()
    torch.testing.assert_close(
        out.cpu().float(), reference(*[query.cpu()] * 3, [2, 4], [2, 4], (-1, -1)), rtol=1e-2, atol=1e-2
    )


def test_what_flash_attention_refuses_is_refused() -> None:
    query = packed(6, 2, 0).to("loom")
    with pytest.raises(RuntimeError, match="only support fp16 and bf16"):
        varlen_attn(*[query.float()] * 3, starts([6]), starts([6]), 6, 6)
    with pytest.raises(RuntimeError, match="where sequences of queries start must rise from 0 to 6, got"):
        varlen_attn(*[query] * 3, starts([9]), starts([9]), 9, 9)
    with pytest.raises(RuntimeError, match="probability from 0 to 1, got 2"):
        flash(query, starts([6]), dropout=2.0)
    with pytest.raises(
        RuntimeError, match="sequence 1 has 4 queries, more than max_seqlen_q, 3: a GPU would"
    ):
        varlen_attn(*[query] * 3, starts([2, 4]), starts([2, 4]), 3, 4)


def test_what_sizes_and_dtypes_tell_is_refused_at_the_call() -> None:
    query, cumulative = packed(6, 2, 0).to("loom"), starts([2, 4])
    pages = torch.zeros(2, 2, dtype=torch.int32, device="loom")

    def refused(words: str, key: Tensor, value: Tensor, own: Tensor = cumulative, **options: object) -> None:
        with pytest.raises(RuntimeError, match=words):
            torch.ops.aten._flash_attention_forward(
                query, key, value, own, options.pop("starts_k", own), 4, 4, 0.0, False, False, **options
            )

    refused("cu_seqlens_q must have dtype int32, got Long", query, query, cumulative.long())
    refused("batch size must be positive", query, query, cumulative[:1])
    refused("must be both set or both not set", query, query, starts_k=None)
    refused("do not fit together", query, query[:3])
    refused("do not fit together", query[:, :1], query)
    refused("must have 3 dimensions", query, query[:, 0])
    refused("must divide number of heads in query, got 0 and 2", query[:, :0], query[:, :0])
    refused("contiguous last dimension", query, query.mT.contiguous().mT)
    refused("slopes must be .*got \\[3\\]", query, query, alibi_slopes=torch.ones(3, device="loom"))
    refused("seqused_k must have dtype int32", query, query, seqused_k=cumulative[:2].long())
    refused("must have 4 dimensions", query, query, seqused_k=cumulative[:2], block_table=pages)
    output, sums, state, unused, _ = flash(query, starts([6]), 0.5)
    for gradient, own_sums, own_state, words in (
        (query[:, :1], sums, state, "the gradient must be BFloat16"),
        (query, sums[:1], state, "logsumexp must be what forward returned"),
        (query, sums, state[:0], "state of dropout must be what forward returned"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch.ops.aten._flash_attention_backward(
                gradient,
                *[query] * 3,
                output,
                own_sums,
                *[starts([6])] * 2,
                6,
                6,
                0.5,
                False,
                own_state,
                unused,
            )
    with pytest.raises(RuntimeError, match="out must have the shape of the query"):
        varlen_attn_out(query.new_empty(3, *query.shape), *[query] * 3, cumulative, cumulative, 4, 4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("used", "table", "words"),
    [
        ([3, 9], [[0, 1], [2, 3]], "seqused_k of sequence 1 must be from 0 to 8, got 9"),
        ([-1, 3], [[0, 1], [2, 3]], "seqused_k of sequence 0 must be from 0 to 8, got -1"),
        ([6, 3], [[0, -1], [2, 3]], "block_table of sequence 0 must have numbers of 4 pages, got -1"),
        ([3, 6], [[0, -7], [2, 9]], "block_table of sequence 1 must have numbers of 4 pages, got 9"),
        ([3, 3], [[0, -7], [2, 9]], None),  # pages that are not used
    ],
)
def test_pages_and_lengths_that_do_not_exist(
    used: list[int], table: list[list[int]], words: str | None, fork_loom: PythonRunner
) -> None:
    fork_loom(PROGRAMS / "pages_and_lengths_that_do_not_exist.py", given=(used, table, words))


def flash(query: Tensor, cumulative: Tensor, dropout: float) -> tuple[Tensor, ...]:
    return torch.ops.aten._flash_attention_forward(
        *[query] * 3, cumulative, cumulative, 6, 6, dropout, False, False
    )


def test_dropout_drops_weights_and_their_gradients() -> None:
    torch.manual_seed(0)
    rows, dropout = 400, 0.25
    query = torch.zeros(rows, 1, WIDTH, dtype=DTYPE, device="loom")  # all weights of a sequence are alike
    cumulative = starts([rows // 2, rows // 2])
    arguments = (cumulative, cumulative, rows // 2, rows // 2, dropout, False)

    def forward() -> tuple[Tensor, ...]:
        return torch.ops.aten._flash_attention_forward(query, query, query, *arguments, False)

    def gradient_of_values(output: Tensor, sums: Tensor, state: Tensor, unused: Tensor, _: Tensor) -> Tensor:
        return torch.ops.aten._flash_attention_backward(
            torch.ones_like(query), query, query, query, output, sums, *arguments, state, unused
        )[2]

    first, second = forward(), forward()
    assert first[0].shape == query.shape
    assert first[1].shape == (1, rows)
    gradient = gradient_of_values(*first)
    # A value gets the sum of the weights of it that were kept.
    kept = gradient.float().cpu()[:, 0, 0] * (rows // 2) * (1 - dropout)
    assert abs(kept.mean() / (rows // 2) - (1 - dropout)) < 0.01
    assert 4 < kept.std() < 9
    assert torch.equal(gradient_of_values(*first), gradient)
    assert not torch.equal(gradient_of_values(*second), gradient)
    assert not torch.equal(kept[: rows // 2], kept[rows // 2 :])
