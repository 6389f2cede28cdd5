"""What a dry run forecasts depends on layouts, and on the attention that a GPU would take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "loom"
CHANNELS_LAST = torch.channels_last


def convolved(source: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    """Return a convolution's result and gradients."""
    source, weight = source.requires_grad_(), weight.requires_grad_()
    result = torch.nn.functional.conv2d(source, weight, padding=1)
    result.sum().backward()
    assert source.grad is not None
    assert weight.grad is not None
    return [result.detach(), source.grad, weight.grad]


def operands(sources_last: bool, weights_last: bool) -> tuple[torch.Tensor, torch.Tensor]:
    source, weight = torch.ones(2, 4, 6, 5, device=DEVICE), torch.ones(8, 4, 3, 3, device=DEVICE)
    return (
        source.contiguous(memory_format=CHANNELS_LAST) if sources_last else source,
        weight.contiguous(memory_format=CHANNELS_LAST) if weights_last else weight,
    )


@pytest.mark.parametrize("sources_last", [False, True])
@pytest.mark.parametrize("weights_last", [False, True])
def test_convolutions_are_laid_out_as_kernels_do_it(sources_last: bool, weights_last: bool) -> None:
    strides = [each.stride() for each in convolved(*operands(sources_last, weights_last))]
    with torch.loom.dry_run(devices=1):
        assert [each.stride() for each in convolved(*operands(sources_last, weights_last))] == strides
    assert (strides[0][1] == 1) == (sources_last or weights_last)


def test_cudnn_returns_float64_contiguous() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        source, weight = (each.double() for each in operands(sources_last=True, weights_last=False))
        assert torch.nn.functional.conv2d(source, weight).is_contiguous()


def test_results_of_grouped_products_have_the_kernels_rows() -> None:
    def product(dtype: torch.dtype) -> torch.Tensor:
        left = torch.ones(8, 16, device=DEVICE, dtype=dtype)
        right = torch.ones(2, 5, 16, device=DEVICE, dtype=dtype).transpose(1, 2)
        ends = torch.tensor([3, 8], dtype=torch.int32, device=DEVICE)
        return torch.nn.functional.grouped_mm(left, right, offs=ends)

    for dtype in (torch.float32, torch.bfloat16):
        real = product(dtype)
        with torch.loom.dry_run(devices=1):
            planned = product(dtype)
            assert (planned.shape, planned.stride()) == (real.shape, real.stride())


@pytest.mark.long
def test_grouped_products_refuse_what_kernels_refuse() -> None:
    left, right = torch.ones(4, 8, device=DEVICE), torch.ones(2, 8, 6, device=DEVICE)
    calls = (
        lambda a, b: torch.nn.functional.grouped_mm(a, b.transpose(1, 2)),
        lambda a, b: torch.nn.functional.grouped_mm(a, b),
        lambda a, b: torch.nn.functional.grouped_mm(a, b.to(torch.bfloat16)),
        lambda a, b: torch.nn.functional.grouped_mm(
            a, b, offs=torch.zeros(2, dtype=torch.int64, device=DEVICE)
        ),
        lambda a, b: torch.nn.functional.grouped_mm(
            a, b, offs=torch.zeros(3, dtype=torch.int32, device=DEVICE)
        ),
    )
    for call in calls:
        with pytest.raises(Exception, match=r"\w") as real:
            call(left, right)
        with torch.loom.dry_run(devices=1):
            planned = [torch.ones_like(each) for each in (left, right)]
            with pytest.raises(type(real.value), match=r"\w") as dry:
                call(*planned)
        assert str(dry.value) == str(real.value)


def choice(
    dtype: torch.dtype, width: int = 64, shared: int = 8, is_masked: bool = False, trains: bool = False
) -> SDPBackend:
    """Return what computes attention of 8 heads, of which so many share their keys."""
    query = torch.ones(2, 8, 16, width, device=DEVICE, dtype=dtype, requires_grad=trains)
    key = torch.ones(2, shared, 16, width, device=DEVICE, dtype=dtype)
    mask = torch.ones(16, 16, device=DEVICE, dtype=dtype) if is_masked else None
    return SDPBackend(torch._fused_sdp_choice(query, key, key, mask, enable_gqa=shared != 8))


OWN, EFFICIENT, PLAIN = SDPBackend.OVERRIDEABLE, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
CHOICES: list[tuple[str, Callable[[], SDPBackend], SDPBackend]] = [
    ("h200", lambda: choice(torch.bfloat16), OWN),
    ("h200", lambda: choice(torch.bfloat16, shared=2), OWN),
    ("h200", lambda: choice(torch.bfloat16, is_masked=True), EFFICIENT),
    ("h200", lambda: choice(torch.bfloat16, shared=2, is_masked=True), PLAIN),
    ("h200", lambda: choice(torch.float32), EFFICIENT),
    ("h200", lambda: choice(torch.float32, shared=2), PLAIN),
    ("h200", lambda: choice(torch.float32, width=66), PLAIN),
    ("rtx4090", lambda: choice(torch.float16, width=200), OWN),
    ("rtx4090", lambda: choice(torch.float16, width=200, trains=True), EFFICIENT),
    ("rtx4090", lambda: choice(torch.float16, width=256, trains=True), OWN),
    ("v100", lambda: choice(torch.float16), EFFICIENT),
    ("v100", lambda: choice(torch.bfloat16), PLAIN),
    ("v100", lambda: choice(torch.float32, width=66), EFFICIENT),
    ("k80", lambda: choice(torch.float32), PLAIN),
    ("loom1", lambda: choice(torch.float32, shared=2), OWN),
]


@pytest.mark.parametrize(("chip", "call", "expected"), CHOICES)
def test_attention_is_what_the_gpu_would_take(
    chip: str, call: Callable[[], SDPBackend], expected: SDPBackend
) -> None:
    with torch.loom.dry_run(chip=chip, devices=1):
        assert call() == expected


def test_a_kernel_that_the_program_turned_off_is_not_taken() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            assert choice(torch.bfloat16) == OWN
            assert choice(torch.float32) == PLAIN
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            assert choice(torch.bfloat16) == EFFICIENT


def test_rows_of_a_mask_are_aligned_as_on_a_gpu() -> None:
    """The memory-efficient kernel reads rows of a mask in pieces of 16 bytes: PyTorch keeps a padded copy."""
    with torch.loom.dry_run(chip="h200", devices=1):
        query = torch.ones(64, 4, 49, 32, device=DEVICE, requires_grad=True)
        before = torch.loom.memory_allocated()
        torch.nn.functional.scaled_dot_product_attention(
            query, query, query, torch.ones(64, 4, 49, 49, device=DEVICE)
        )
        kept = torch.loom.max_memory_allocated() - before
    assert kept >= 4 * (64 * 4 * 49 * (49 + 56 + 32))
