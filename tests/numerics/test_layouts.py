"""Every layout, stride and dtype; in place and out=."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.errors import OperandError
from torch_loom.numerics import DataFormat

B8 = DataFormat.Bfp8_b


def layouts() -> dict[str, Tensor]:
    base = random(4, 6, 8, 20)
    return {
        "transposed": base.transpose(-1, -2),
        "channels_last": base.to(memory_format=torch.channels_last),
        "sliced": base[:, 1::2, :, 3:17],
        "stepped": base[..., ::3],
        "expanded": base[:, :1].expand(4, 5, 8, 20),
        "offset": base.flatten()[7:],
        "scalar": base[0, 0, 0, 0],
        "empty": base[:, :0],
        "empty row": base[..., :0],
        "negative": torch.randn(4, 8, dtype=torch.complex64).conj().imag,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", layouts())
def test_layouts_and_dtypes(layout: str, dtype: torch.dtype) -> None:
    x = layouts()[layout]
    x = x if x.dtype is dtype else x.to(dtype)
    for fmt in (B8, DataFormat.Float16, DataFormat.Int8):
        wanted = numerics.quantize(x.float().contiguous().clone(), fmt).to(dtype)
        got = numerics.quantize(x, fmt)
        assert got.dtype is dtype
        assert torch.equal(got, wanted)
        out = torch.empty(0, dtype=dtype)
        assert numerics.quantize(x, fmt, out=out) is out
        assert torch.equal(out, wanted)
        strided = torch.empty(*x.shape, 2, dtype=dtype)[..., 1]
        numerics.quantize(x, fmt, out=strided)
        assert torch.equal(strided, wanted)
        if layout != "expanded":
            target = x.clone()
            target = torch.empty_strided(x.shape, x.stride(), dtype=dtype).copy_(target)
            version = target._version
            assert numerics.quantize_(target, fmt) is target
            assert torch.equal(target, wanted)
            assert target._version > version


def test_large_results_are_the_same_as_small_ones() -> None:
    # From 16 MiB on, results are written past the caches.
    x = random(1 << 10, 1 << 13)
    whole = numerics.quantize(x, B8)
    assert all(torch.equal(numerics.quantize(x[i], B8), whole[i]) for i in range(0, 1 << 10, 97))
    ragged = random(5001, 1000)
    assert torch.equal(numerics.quantize(ragged, B8)[4000:], numerics.quantize(ragged[4000:].clone(), B8))


def test_overlapping_memory_is_refused() -> None:
    x = random(40)
    with pytest.raises(RuntimeError, match="single memory location"):
        numerics.quantize_(x[:1].expand(8), B8)
    with pytest.raises(RuntimeError, match="written-to tensor"):
        numerics.quantize(x[:32], B8, out=x[1:33])
    assert numerics.quantize(x, B8, out=x) is x


def test_in_place_is_part_of_the_graph() -> None:
    x = random(3, 20).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        numerics.quantize_(x, B8)
    y = x * 2
    numerics.quantize_(y, B8)
    assert torch.equal(y, numerics.quantize(x.detach() * 2, B8))
    y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))  # type: ignore[arg-type]
    saved = (x * 2).exp()
    result = saved.sum()
    numerics.quantize_(saved, B8)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
    with pytest.raises(RuntimeError, match="out="):
        numerics.quantize(x, B8, out=torch.empty(3, 20))


def test_matmul_out() -> None:
    a, b, out = random(5, 20), random(20, 4), torch.empty(0)
    assert numerics.matmul(a, b, out=out) is out
    assert torch.equal(out, numerics.matmul(a, b))
    with pytest.raises(OperandError, match=r"out is a torch\.float64"):
        numerics.matmul(a, b, out=out.double())


def test_inference_mode() -> None:
    x = random(3, 20)
    with torch.inference_mode():
        y = numerics.quantize(x * 1, B8)
        numerics.quantize_(y, DataFormat.Bfp4_b)
    assert torch.equal(y, numerics.quantize(numerics.quantize(x, B8), DataFormat.Bfp4_b))
