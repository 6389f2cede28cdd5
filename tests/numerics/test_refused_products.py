"""Operands that PyTorch refuses are refused in its words under every mode that computes products itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import BlockScaled, DataFormat, emulate, tensor_core

F8, ONE = torch.float8_e4m3fn, torch.ones(())


def half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float16)


def narrow(*shape: int) -> Tensor:
    return torch.ones(shape).to(F8)


def grouped(a: Tensor, b: Tensor, ends: list[int] | None = None, dtype: torch.dtype = torch.int32) -> Tensor:
    offs = None if ends is None else torch.tensor(ends, dtype=dtype)
    return torch._grouped_mm(a.bfloat16(), b.bfloat16(), offs=offs)


def scaled(a: Tensor, b: Tensor, *scales: Tensor, **options: Any) -> Tensor:
    return torch._scaled_mm(a, b, *(scales or (ONE, ONE)), out_dtype=torch.bfloat16, **options)


PRODUCTS: dict[str, Callable[[], Any]] = {
    "mm: K": lambda: torch.mm(half(3, 4), half(3, 4)),
    "mm: rank": lambda: torch.mm(half(1, 3, 4), half(4, 2)),
    "bmm: batches": lambda: torch.bmm(half(1, 3, 4), half(2, 4, 3)),
    "bmm: rank": lambda: torch.bmm(half(3, 4), half(4, 3)),
    "mv": lambda: torch.mv(half(3, 4), half(3)),
    "mv: rank": lambda: torch.mv(half(3, 4), half(4, 2)),
    "addmm: rank": lambda: torch.addmm(half(2, 3, 3), half(3, 4), half(4, 3)),
    "addmm: sizes": lambda: torch.addmm(half(2, 3), half(3, 4), half(4, 3)),
    "addmv": lambda: torch.addmv(half(2, 3), half(3, 4), half(4)),
    "baddbmm": lambda: torch.baddbmm(half(5, 1, 3, 3), half(1, 3, 4), half(1, 4, 3)),
    "addbmm": lambda: torch.addbmm(half(2, 3, 3), half(1, 3, 4), half(1, 4, 3)),
    "addbmm: batches": lambda: torch.addbmm(half(3, 3), half(2, 3, 4), half(3, 4, 3)),
    "conv: channels": lambda: functional.conv2d(half(1, 3, 8, 8), half(6, 4, 3, 3)),
    "conv: groups": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 1, 3, 3), groups=4),
    "conv: stride": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), stride=0),
    "conv: dilation": lambda: functional.conv1d(half(1, 4, 8), half(6, 4, 3), dilation=0),
    "conv: padding": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), padding=-1),
    "conv: paddings": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), padding=(1, 1, 1)),
    "conv: 'foo'": lambda: functional.conv1d(half(1, 4, 8), half(6, 4, 3), padding="foo"),
    "conv: 'same'": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), padding="same", stride=2),
    "conv: bias": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), half(1)),
    "conv: bias of rank 2": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), half(6, 1)),
    "conv: rank": lambda: functional.conv2d(half(8, 8), half(6, 4, 3, 3)),
    "conv: window": lambda: functional.conv3d(half(1, 4, 2, 8, 8), half(6, 4, 3, 3, 3)),
    "transposed: output_padding": lambda: functional.conv_transpose2d(
        half(1, 4, 8, 8), half(4, 6, 3, 3), output_padding=1
    ),
    "transposed: padding": lambda: functional.conv_transpose1d(half(1, 4, 8), half(4, 6, 3), padding=-1),
    "transposed: groups": lambda: functional.conv_transpose2d(half(1, 4, 8, 8), half(4, 6, 3, 3), groups=3),
}
# What has no rule of Tensix chips, or whose dtypes the formats replace.
OF_TENSOR_CORES: dict[str, Callable[[], Any]] = {
    "mm: out_dtype": lambda: torch.mm(half(3, 4), half(4, 3), out_dtype=torch.int32),
    "addmm: dtype": lambda: torch.addmm(torch.ones(3, 3), half(3, 4), half(4, 3)),
    "addmv: dtype": lambda: torch.addmv(torch.ones(3), half(3, 4), half(4)),
    "conv: dtype of bias": lambda: functional.conv2d(half(1, 4, 8, 8), half(6, 4, 3, 3), torch.ones(6)),
    "grouped: K": lambda: grouped(half(16, 64), half(2, 32, 16), [8, 16]),
    "grouped: batches": lambda: grouped(half(1, 16, 64), half(2, 64, 16)),
    "grouped: no offs": lambda: grouped(half(16, 64), half(2, 64, 16)),
    "grouped: number": lambda: grouped(half(16, 64), half(2, 64, 16), [4, 8, 16]),
    "grouped: dtype of offs": lambda: grouped(half(16, 64), half(2, 64, 16), [8, 16], torch.int64),
    "scaled: K": lambda: scaled(narrow(16, 64), narrow(16, 32).t()),
    "scaled: scales": lambda: scaled(narrow(16, 64), narrow(16, 64).t(), torch.ones(3), torch.ones(5)),
    "scaled: bias": lambda: scaled(narrow(16, 64), narrow(16, 64).t(), bias=torch.ones(3)),
    "scaled: dtype": lambda: scaled(half(16, 64), narrow(16, 64).t()),
}
OF_TENSIX: dict[str, Callable[[], Any]] = {
    "dot": lambda: torch.dot(half(3, 4), half(3, 4)),
    "bilinear: bias": lambda: functional.bilinear(half(2, 3), half(2, 4), half(5, 3, 4), half(1)),
    "attention: mask": lambda: functional.scaled_dot_product_attention(
        *[torch.ones(1, 2, 4, 8)] * 3, attn_mask=torch.ones(3, 1, 1, 4, 4)
    ),
}


def error_of(call: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any that PyTorch raises)
        call()
    return caught.type, str(caught.value)


def emulated(mode: str) -> AbstractContextManager[Any]:
    return emulate(DataFormat.Float16, mode=mode)


@pytest.mark.parametrize("name", [*PRODUCTS, *OF_TENSOR_CORES])
def test_under_tensor_cores(name: str) -> None:
    call = (PRODUCTS | OF_TENSOR_CORES)[name]
    wanted = error_of(call)
    with tensor_core(chip="h100"):
        assert error_of(call) == wanted


@pytest.mark.parametrize("mode", ["fast", "silicon"])
@pytest.mark.parametrize("name", [*PRODUCTS, *OF_TENSIX])
def test_under_emulation(name: str, mode: str) -> None:
    call = (PRODUCTS | OF_TENSIX)[name]
    wanted = error_of(call)
    with emulated(mode):
        assert error_of(call) == wanted


def test_what_pytorch_takes_is_computed() -> None:
    a, b = half(3, 4), half(4, 3)
    with tensor_core(chip="h100"), torch.no_grad():
        for c in (half(3, 3), half(3), half(1, 3), half(3, 1), half(1)):
            assert (torch.addmm(c, a, b) == 5).all()
        assert torch.addmm(half(3, 3), a, b, out_dtype=torch.float32).dtype is torch.float32
        assert (torch.addmv(half(1), a, b[:, 0]) == 5).all()
        assert functional.conv2d(half(4, 8, 8), half(6, 4, 3, 3), half(6), padding="same").shape == (6, 8, 8)
        x, w = half(1, 4, 8), half(4, 6, 3)
        assert functional.conv_transpose1d(x, w, dilation=2, output_padding=1).shape == (1, 6, 13)


def test_groups_that_go_back_or_beyond_are_named() -> None:
    for ends in ([16, 8], [8, 17], [-1, 16]):
        with (
            tensor_core(chip="h100"),
            pytest.raises(OperandError, match=rf"offs is \[{ends[0]}, .*within 16"),
        ):
            grouped(half(16, 64), half(2, 64, 16), ends)


def test_operands_with_scales_of_blocks_have_to_fit() -> None:
    scales = torch.ones(512, dtype=torch.float8_e8m0fnu)
    told = r"_scaled_mm: operands of .*float8_e4m3fn \[16, 64\] and .*\[32, 16\].*; allowed: \[M, K\]"
    with tensor_core(chip="b200"), pytest.raises(OperandError, match=told):
        scaled(narrow(16, 64), narrow(16, 32).t(), scales, scales)
    with tensor_core(chip="b200"), pytest.raises(OperandError, match=r"a bias of \[3\]"):
        scaled(narrow(16, 64), narrow(16, 64).t(), scales, scales, bias=torch.ones(3))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"split_k": True}, "split_k is True; allowed: None, or parts of K, from 1 to 2147483647"),
        ({"split_k": 2**70}, "split_k is 1180591620717411303424; allowed"),
        ({"promotion": 2**70}, "promotion is 1180591620717411303424 on h100; allowed"),
        ({"tf32": "yes"}, "tf32 is 'yes'; allowed: True, False"),
        ({"exact": 1}, "exact is 1; allowed: True, False"),
        ({"partial": None}, "partial is None; allowed: True, False"),
        ({"chip": []}, r"chip is \[\], whose matrix instructions have no rule; allowed: v100"),
        ({"format": []}, r"format is \[\]; allowed: None, BlockScaled"),
        ({"format": BlockScaled.NVFP4}, "NVFP4 on h100"),
    ],
    ids=str,
)
def test_options_are_named(option: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError, match=f"tensor_core: {told}"):
        tensor_core(**option)
