"""``emulate(mode="silicon")`` and the converters' rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.numerics import silicon_reference as reference
from torch_loom import numerics
from torch_loom.errors import FormatError
from torch_loom.numerics import DataFormat, MathFidelity, emulate, quantize

B8, B4, B2 = DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b
BITS = {B8: 7, B4: 3, B2: 1}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def unpacked(fmt: DataFormat, exponents: np.ndarray, elements: np.ndarray) -> Tensor:
    bits = BITS[fmt]
    magnitude = (elements & ((1 << bits) - 1)).astype(np.float64)
    values = magnitude * 2.0 ** (exponents[:, None].astype(np.float64) - 127 - (bits - 1))
    return torch.from_numpy(np.where(elements >> bits & 1, -values, values)).float()


@pytest.mark.parametrize(("rule", "source"), [("packer", 6), ("packer_precise", 5)])
@pytest.mark.parametrize("fmt", BITS, ids=str)
def test_packer(fmt: DataFormat, rule: str, source: int) -> None:
    values = (random(200, 16) * torch.exp2(random(200, 16, seed=1) * 4)).bfloat16()
    bits = values.view(torch.int16).numpy().view(np.uint16).astype(np.int64)
    mode = source << 4 | {B8: 6, B4: 7, B2: 15}[fmt]
    assert torch.equal(quantize(values.float(), fmt, rule=rule), unpacked(fmt, *reference.packed(mode, bits)))


def test_packer_cuts_where_others_round() -> None:
    block = torch.tensor([1.0, 0.7] + [0.0] * 14)
    assert quantize(block, B4)[1] == 0.75
    assert quantize(block, B4, rule="host")[1] == 0.75
    assert quantize(block, B4, rule="packer")[1] == 0.5


def test_host_forgets_what_alignment_shifts_out() -> None:
    # 3/128 of the largest: PyBuda rounds 1.5 steps of 1/64 up, and so does the host; below that it forgets.
    block = torch.tensor([1.0, 3 / 128 + 2**-24, 5 / 128] + [0.0] * 13)
    assert quantize(block, B8)[1:3].tolist() == [2 / 64, 3 / 64]
    assert quantize(block, B8, rule="host")[1:3].tolist() == [2 / 64, 2 / 64]


@pytest.mark.parametrize("fmt", [DataFormat.Float32, DataFormat.Float16_b, DataFormat.Float16], ids=str)
def test_host_makes_single_values_as_pybuda(fmt: DataFormat) -> None:
    values, layer = random(9, 75), nn.Linear(75, 24)
    assert torch.equal(quantize(values, fmt, rule="host"), quantize(values, fmt))
    with torch.no_grad():
        wanted, got = layer(values), emulate(layer, fmt, mode="silicon")(values)
    assert (got - wanted).norm() < 0.02 * wanted.norm()


def test_unpacker_cuts() -> None:
    value = torch.tensor([1.0 + 2**-10 + 2**-11, -(1.0 + 2**-7 + 2**-8)])
    assert quantize(value, DataFormat.Float32, rule="unpacker")[0] == 1.0 + 2**-10
    assert quantize(value, DataFormat.Float16_b, rule="unpacker")[1] == -(1.0 + 2**-7)


@pytest.mark.parametrize("accumulate", [DataFormat.Float16_b, DataFormat.Float32], ids=str)
@pytest.mark.parametrize("fmt", [B8, B4], ids=str)
def test_a_layer_is_its_converters_and_the_matrix_unit(fmt: DataFormat, accumulate: DataFormat) -> None:
    layer, x = nn.Linear(75, 24, bias=False), random(9, 75)
    model = emulate(layer, fmt, fidelity=MathFidelity.HiFi2, accumulate=accumulate, mode="silicon")
    with torch.no_grad():
        got = model(x)
    weight = quantize(layer.weight.detach(), fmt, rule="host")
    sums = numerics.matmul(
        quantize(x, fmt, rule="host"),
        weight.T,
        fidelity=MathFidelity.HiFi2,
        accumulate=accumulate,
        mode="silicon",
    )
    if accumulate is DataFormat.Float16_b:
        assert torch.equal(got, quantize(sums, fmt, rule="packer"))
    else:
        # From float32 the packer rounds half up in the pattern, once to seven bits.
        assert (got - sums).abs().max() < 2.0 ** (-4 if fmt is B8 else 0)
        assert not torch.equal(got, sums)


def test_blocks_of_k_wait_in_the_results_format() -> None:
    a, b = quantize(random(8, 128), B8, rule="packer"), quantize(random(24, 128, seed=1), B8, rule="host").T
    how = {"accumulate": DataFormat.Float32, "mode": "silicon"}
    whole = numerics.matmul(a, b, **how)  # type: ignore[arg-type]
    with emulate(B8, fidelity=MathFidelity.HiFi4, accumulate=DataFormat.Float32, mode="silicon", k_block=1):
        blocks = torch.matmul(a, b)
    # Float32 sums wait as they are: only their packing at the end differs.
    with emulate(B8, fidelity=MathFidelity.HiFi4, accumulate=DataFormat.Float32, mode="silicon"):
        assert torch.equal(torch.matmul(a, b), blocks)
    assert (whole - blocks).abs().max() > 0
    short = {"fidelity": MathFidelity.HiFi4, "mode": "silicon"}
    with emulate(B8, k_block=1, **short), torch.no_grad():  # type: ignore[call-overload]
        waiting = torch.matmul(a, b)
    with emulate(B8, **short), torch.no_grad():  # type: ignore[call-overload]
        assert not torch.equal(torch.matmul(a, b), waiting)
    with emulate(B8, k_block=1, l1_accumulate=True, **short), torch.no_grad():  # type: ignore[call-overload]
        assert not torch.equal(torch.matmul(a, b), waiting)


@pytest.mark.long
def test_silicon_trains_and_compiles() -> None:
    model = emulate(nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 4)), B8, mode="silicon")
    x = random(6, 32)
    wanted = model(x)
    wanted.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), wanted)


def test_bad_input() -> None:
    with pytest.raises(
        FormatError, match="chip is 'atom', which has no rule of silicon; allowed: wormhole_b0"
    ):
        emulate(B8, mode="silicon", chip="atom")
    with pytest.raises(FormatError, match="no rule of silicon for Bfp8 on wormhole_b0; allowed: Float32"):
        emulate(DataFormat.Bfp8, mode="silicon")
    with pytest.raises(FormatError, match="k_block is 0; allowed"):
        emulate(B8, mode="silicon", k_block=0)
    with pytest.raises(FormatError, match="the matrix unit keeps no sums of Float32 in Float16"):
        numerics.matmul(random(2, 2), random(2, 2), accumulate=DataFormat.Float16, mode="silicon")
    with pytest.raises(FormatError, match="rule is 'chip'; allowed: pybuda, host"):
        quantize(random(16), B8, rule="chip")
    with pytest.raises(FormatError, match="packer has no rule for Bfp8; allowed: Float32"):
        quantize(random(16), DataFormat.Bfp8, rule="packer")
