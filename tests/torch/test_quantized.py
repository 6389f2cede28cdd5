"""Quantized tensors and packed weights, against the CPU's."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

DTYPES = (torch.qint8, torch.quint8, torch.qint32)


def values(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1))


def quantized(device: str, dtype: torch.dtype = torch.quint8, *sizes: int) -> Tensor:
    return torch.quantize_per_tensor(values(*(sizes or (4, 6))).to(device), 0.05, 10, dtype)


def per_channel(device: str) -> Tensor:
    scales, zeros = torch.linspace(0.01, 0.04, 4).to(device), torch.arange(4).to(device)
    return torch.quantize_per_channel(values(4, 6).to(device), scales, zeros, 0, torch.qint8)


def same(here: object, there: object) -> None:
    if not isinstance(there, Tensor):
        assert here == there
        return
    assert isinstance(here, Tensor)
    assert here.device.type == "loom"
    assert (here.shape, here.dtype, here.is_quantized) == (there.shape, there.dtype, there.is_quantized)
    if not there.is_quantized:
        torch.testing.assert_close(here.cpu(), there)
        return
    assert here.qscheme() == there.qscheme()
    assert torch.equal(here.int_repr().cpu(), there.int_repr())
    assert torch.equal(here.dequantize().cpu(), there.dequantize())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_per_tensor(dtype: torch.dtype) -> None:
    same(quantized("loom", dtype), quantized("cpu", dtype))
    assert quantized("loom", dtype).q_scale() == 0.05
    assert quantized("loom", dtype).q_zero_point() == 10


def test_per_channel() -> None:
    here, there = per_channel("loom"), per_channel("cpu")
    same(here, there)
    assert here.q_per_channel_axis() == 0
    assert here.q_per_channel_scales().device.type == "loom"
    torch.testing.assert_close(here.q_per_channel_scales().cpu(), there.q_per_channel_scales())
    assert torch.equal(here.q_per_channel_zero_points().cpu(), there.q_per_channel_zero_points())


OPS: dict[str, Callable[[Tensor], object]] = {
    "relu": torch.relu,
    "relu in place": lambda x: x.clone().relu_(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "sum of two": lambda x: torch.ops.quantized.add(x, x, 0.1, 3),
    "product": lambda x: torch.ops.quantized.mul(x, x, 0.1, 3),
    "comparison": lambda x: x > 0.2,
    "view": lambda x: x.view(6, 4),
    "row": lambda x: x[1],
    "transpose": lambda x: x.t(),
    "clone": lambda x: x.clone(),
    "copied into": lambda x: torch.empty_like(x).copy_(x),
    "from floats": lambda x: torch.empty_like(x).copy_(x.dequantize() * 0.5),
    "joined": lambda x: torch.cat([x, x]),
    "largest": lambda x: x.max(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "mean": lambda x: x.mean(-1),
    "pooled": lambda x: torch.nn.functional.avg_pool2d(x.view(1, 1, 4, 6), 2),
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("op", OPS)
def test_ops(op: str) -> None:
    same(OPS[op](quantized("loom")), OPS[op](quantized("cpu")))


@pytest.mark.parametrize("make", [quantized, per_channel])
def test_moves(make: Callable[[str], Tensor]) -> None:
    there = make("cpu")
    here = there.to("loom")
    same(here, there)
    back = here.cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back.int_repr(), there.int_repr())
    assert back.qscheme() == there.qscheme()
    assert "quantization_scheme" in repr(here)


def test_writes_reach_views() -> None:
    x = quantized("loom")
    row = x[0]
    x.fill_(1.0)
    assert row.dequantize().cpu().unique().tolist() == pytest.approx([1.0])


def test_linear_and_convolution_of_int8() -> None:
    def linear(device: str) -> Tensor:
        weight = torch.quantize_per_tensor(values(3, 6).to(device), 0.05, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, torch.ones(3, device=device))
        del weight
        return torch.ops.quantized.linear(quantized(device), packed, 0.1, 5)

    def convolution(device: str) -> Tensor:
        weight = torch.quantize_per_tensor(values(2, 1, 3, 3).to(device), 0.05, 0, torch.qint8)
        packed = torch.ops.quantized.conv2d_prepack(weight, None, [1, 1], [0, 0], [1, 1], 1)
        return torch.ops.quantized.conv2d(quantized(device, torch.quint8, 1, 1, 5, 5), packed, 0.1, 5)

    same(linear("loom"), linear("cpu"))
    same(convolution("loom"), convolution("cpu"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_dynamically_quantized_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    expected = small(values(4, 6))
    same(small.to("loom")(values(4, 6).to("loom")), expected)


def test_weights_of_four_bits() -> None:
    numbers = torch.randint(0, 16, (32, 64), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    pairs = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)
    scales_and_zeros = values(2, 32, 2).bfloat16()
    x = values(5, 64).bfloat16()
    packed = torch._convert_weight_to_int4pack(pairs.to("loom"), 2)
    assert (packed.shape, packed.dtype) == ((4, 2, 32, 1), torch.int32)
    here = torch._weight_int4pack_mm(x.to("loom"), packed, 32, scales_and_zeros.to("loom"))
    for_cpu = torch._convert_weight_to_int4pack_for_cpu(numbers, 2)
    same(here, torch._weight_int4pack_mm_for_cpu(x, for_cpu, 32, scales_and_zeros))
    with pytest.raises(RuntimeError, match="multiples of 8 and 32"):
        torch._convert_weight_to_int4pack(pairs[:, :3].to("loom"), 2)


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(32)))
    there = torch.from_file(str(path), size=8, dtype=torch.int32)
    same(torch.from_file(str(path), size=8, dtype=torch.int32, device="loom"), there)
    with pytest.raises(NotImplementedError, match="map the file on the CPU"):
        torch.from_file(str(path), shared=True, size=8, dtype=torch.int32, device="loom")


@pytest.mark.filterwarnings("ignore:.*computes nothing")
def test_where_nothing_is_computed() -> None:
    with torch.loom.dry_run(devices=1):
        x = torch.ones(4, device="loom")
        assert torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255).shape == (4,)
        with pytest.raises(NotImplementedError, match="fake quantization"):
            torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


@pytest.mark.parametrize("make", [quantized, per_channel])
def test_copies_and_files_keep_the_quantizer(make: Callable[[str], Tensor]) -> None:
    here, there = make("loom"), make("cpu")
    same(copy.deepcopy(here), there)
    file = io.BytesIO()
    torch.save(here, file)
    file.seek(0)
    same(torch.load(file), there)
    file.seek(0)
    read = torch.load(file, "cpu")
    assert torch.equal(read.int_repr(), there.int_repr())
    assert read.device.type == "cpu"
