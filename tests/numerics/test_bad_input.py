"""Bad input: typed errors that name op, format and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.errors import FormatError, OperandError, PackedDataError
from torch_loom.numerics import DataFormat, MathFidelity

B8 = DataFormat.Bfp8_b


def test_bad_formats_are_named() -> None:
    x = random(4, 4)
    for call, name in [
        (lambda fmt: numerics.quantize(x, fmt), "quantize"),
        (lambda fmt: numerics.quantize_(x, fmt), "quantize_"),
        (lambda fmt: numerics.pack(x, fmt), "pack"),
        (lambda fmt: numerics.unpack(torch.zeros(1, 1088, dtype=torch.uint8), fmt, (4, 4)), "unpack"),
        (lambda fmt: numerics.matmul(x, x, out_format=fmt), "matmul"),
        (lambda fmt: numerics.conv2d(x, x, out_format=fmt), "conv2d"),
        (lambda fmt: numerics.emulate(fmt), "emulate"),
    ]:
        with pytest.raises(FormatError, match=rf"{name}.*Invalid.*allowed.*Bfp8_b"):
            call(DataFormat.Invalid)
    for call in (numerics.quantize, numerics.pack):
        with pytest.raises(FormatError, match="'Bfp8_b', not a DataFormat"):
            call(x, "Bfp8_b")  # type: ignore[operator]
    with pytest.raises(FormatError, match="'Bfp9' is no data format"):
        DataFormat.from_json("Bfp9")
    with pytest.raises(FormatError, match="range"):
        _ = DataFormat.Invalid.range
    with pytest.raises(FormatError, match=r"fidelity is .*allowed: LoFi"):
        numerics.matmul(x, x, fidelity=MathFidelity.Invalid)
    with pytest.raises(FormatError, match="sums cannot be kept in Bfp8_b; allowed: Float32"):
        numerics.matmul(x, x, accumulate=B8)
    with pytest.raises(FormatError, match="need HiFi4"):
        numerics.matmul(x, x, accumulate=DataFormat.Int32, fidelity=MathFidelity.LoFi)
    with pytest.raises(FormatError, match="mode is 'exact'; allowed: fast, silicon"):
        numerics.matmul(x, x, mode="exact")
    with pytest.raises(
        FormatError, match=r"matmul: .*operand 0 is Float16 \(family a\).*operand 1 is Float16_b"
    ):
        numerics.matmul(x.half(), x.bfloat16())


def test_bad_operands_are_named() -> None:
    for bad in (torch.arange(4), torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.complex64)):
        with pytest.raises(
            OperandError, match=rf"quantize: t is a {bad.dtype} tensor; allowed for Bfp8_b: torch.float32"
        ):
            numerics.quantize(bad, B8)
        with pytest.raises(OperandError, match="matmul: b is"):
            numerics.matmul(random(4, 4), bad)
    with pytest.raises(OperandError, match="list, not a tensor"):
        numerics.quantize([1.0], B8)  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="sparse_coo"):
        numerics.quantize(random(4, 4).to_sparse(), B8)
    with pytest.raises(OperandError, match="conv2d: input and weight have shapes"):
        numerics.conv2d(random(4, 4), random(4, 4))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        numerics.matmul(random(3, 4), random(5, 4))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        numerics.matmul(random(3, 4), random(5, 4), mode="silicon")


def test_bad_tiles_are_named() -> None:
    tiles = numerics.pack(random(40, 40), B8)
    with pytest.raises(PackedDataError, match=r"4 Bfp8_b tiles of 1088 bytes, 4352 in all"):
        numerics.unpack(tiles.flatten()[:-1], B8, (40, 40))
    with pytest.raises(PackedDataError, match="2304 in all"):
        numerics.unpack(tiles, DataFormat.Bfp4_b, (40, 40))
    with pytest.raises(PackedDataError, match="negative"):
        numerics.unpack(tiles, B8, (-1, 40))
    with pytest.raises(OperandError, match=r"torch\.float32 tensor; allowed: torch\.uint8"):
        numerics.unpack(tiles.float(), B8, (40, 40))
    with pytest.raises(PackedDataError, match="5-bit exponents"):
        numerics.unpack(tiles, DataFormat.Bfp8, (40, 40))
    with pytest.raises(PackedDataError, match="Lf8 has no code"):
        numerics.pack(torch.full((2, 2), float("nan")), DataFormat.Lf8)


def test_bad_shapes_of_tiles_are_named() -> None:
    tiles = numerics.pack(random(4, 40), B8)
    for shape in (4, (4.0, 40), (None, 40), "44", b"44"):
        with pytest.raises(OperandError, match="unpack: shape is"):
            numerics.unpack(tiles, B8, shape)  # type: ignore[arg-type]
        with pytest.raises(OperandError, match="num_tiles: shape is"):
            numerics.num_tiles(shape)  # type: ignore[arg-type]


def test_bad_correlations_are_named() -> None:
    with pytest.raises(OperandError, match=r"pcc: shapes \[3\] and \[4\]"):
        numerics.pcc(torch.ones(3), torch.ones(4))
    with pytest.raises(OperandError, match="pcc: values is a list"):
        numerics.pcc([1.0], torch.ones(1))  # type: ignore[arg-type]


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    values = random(40, 40)
    path = tmp_path / "tiles"
    path.write_bytes(numerics.pack(values, B8).numpy().tobytes())
    whole = torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)
    assert torch.equal(numerics.unpack(whole, B8, (40, 40)), numerics.quantize(values, B8))
    for left in (0, 1, 1087, 4351):
        with pytest.raises(PackedDataError, match=rf"unpack: {left} bytes.*4 Bfp8_b tiles of 1088 bytes"):
            numerics.unpack(whole[:left].clone(), B8, (40, 40))


@pytest.mark.parametrize("mode", ["fast", "silicon"])
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"stride": 0}, "stride is 0; allowed: one or two whole numbers from 1 on"),
        ({"stride": (1, 1, 1)}, "stride is"),
        ({"dilation": (1, 0)}, "dilation is"),
        ({"padding": -1}, "padding is -1; allowed: one or two whole numbers from 0 on"),
        ({"padding": (1, 1, 1)}, "padding is"),
        ({"padding": "full"}, "padding is 'full'; allowed: 'valid', 'same'"),
        ({"padding": "same", "stride": 2}, "'same', which needs a stride of 1"),
        ({"groups": 3}, "do not fit 3 groups"),
        ({"groups": 0}, "do not fit 0 groups"),
        ({"weight": torch.ones(6, 3, 3, 3)}, "do not fit 1 groups; allowed: 3 channels"),
        ({"bias": torch.ones(5)}, r"bias has shape \[5\]; allowed: \[6\]"),
        ({"bias": torch.ones(6, dtype=torch.int32)}, "bias is a torch.int32 tensor; allowed: torch.float32"),
        ({"input": torch.ones(1, 4, 8, 8, dtype=torch.int8)}, "input is a torch.int8 tensor"),
    ],
    ids=str,
)
def test_bad_convolutions_are_named(changed: dict[str, Any], told: str, mode: str) -> None:
    given = {"input": random(1, 4, 8, 8), "weight": random(6, 4, 3, 3), **changed}
    with pytest.raises(OperandError, match=f"conv2d: .*{told}"):
        numerics.conv2d(**given, mode=mode)


def test_windows_larger_than_the_input_are_refused() -> None:
    x, weight = random(1, 4, 2, 2), random(6, 4, 3, 3)
    for mode in ("fast", "silicon"):
        with pytest.raises((RuntimeError, OperandError), match=r"2 x 2|does not fit"):
            numerics.conv2d(x, weight, mode=mode)
        assert numerics.conv2d(x, weight, padding=1, mode=mode).shape == (1, 6, 2, 2)
        assert numerics.conv2d(x[:0], weight, padding=1, mode=mode).shape == (0, 6, 2, 2)


@pytest.mark.parametrize("device", ["cpu", "loom"])
def test_bad_settings_of_emulation_are_named(device: str) -> None:
    model = torch.nn.Linear(4, 4).to(device)
    with pytest.raises(FormatError, match="formats is 'x', not a DataFormat"):
        numerics.emulate(model, B8, formats=["x"])  # type: ignore[list-item]
    with pytest.raises(FormatError, match="formats is Bfp8_b; allowed: a list"):
        numerics.emulate(model, B8, formats=B8)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="the chip lacks Bfp8_b"):
        numerics.emulate(model, B8, formats=[])
    for overrides in ([("head", B8)], {3: B8}):
        with pytest.raises(FormatError, match=r"overrides is .*allowed: a dict"):
            numerics.emulate(model, B8, overrides=overrides)  # type: ignore[arg-type]


def test_bad_reports_are_named() -> None:
    model, x = torch.nn.Linear(4, 4), random(2, 4)
    for call in (numerics.compare, numerics.search):
        name = call.__name__
        with pytest.raises(OperandError, match=f"{name}: model is a int"):
            call(3, x)  # type: ignore[operator]
        with pytest.raises(FormatError, match=f"{name}: formats is Bfp8_b; allowed: a list"):
            call(model, x, formats=B8)  # type: ignore[operator]
        with pytest.raises(FormatError, match=f"{name}: formats is DataFormat.Invalid"):
            call(model, x, formats=[B8, DataFormat.Invalid])  # type: ignore[operator]
    for budget in ("x", None, float("nan")):
        with pytest.raises(OperandError, match="search: budget is"):
            numerics.search(model, x, budget=budget)  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="metric is 3"):
        numerics.search(model, x, 3)  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="metric returned 'good'"):
        numerics.search(model, x, lambda got, exact: "good")  # type: ignore[arg-type, return-value]


def test_names_that_are_no_text_are_refused() -> None:
    for kind in (DataFormat, MathFidelity):
        for bad in (None, 6, []):
            with pytest.raises(FormatError, match="from_json"):
                kind.from_json(bad)  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: numerics.quantize(x, DataFormat.Invalid), "quantize: fmt is DataFormat.Invalid"),
        (lambda x: numerics.quantize(x.int(), B8), "quantize: t is a torch.int32 tensor"),
        (lambda x: numerics.matmul(x, x.half()), "matmul: the operands of one op share"),
    ],
    ids=["format", "integers", "families"],
)
def test_compiled_code_says_the_same(call: Callable[[Tensor], Tensor], told: str) -> None:
    torch._dynamo.reset()
    with pytest.raises((FormatError, OperandError), match=told):
        torch.compile(call, backend="aot_eager")(random(4, 4))
    torch._dynamo.reset()
    # Without graph breaks the compiler's own error says which error of ours it met.
    with pytest.raises(torch._dynamo.exc.Unsupported, match=told):
        torch.compile(call, backend="aot_eager", fullgraph=True)(random(4, 4))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            {"k_block": 2**55},
            "k_block is 36028797018963968; allowed: tiles of 32 products, from 1 to 2147483647",
        ),
        ({"k_block": True}, "k_block is True; allowed"),
        ({"l1_accumulate": "yes"}, "l1_accumulate is 'yes'; allowed: True, False"),
        ({"l1_accumulate": 1}, "l1_accumulate is 1; allowed: True, False"),
    ],
    ids=str,
)
def test_bad_blocks_of_sums_are_named(option: dict[str, Any], told: str) -> None:
    x = random(4, 4)
    for mode in ("silicon", "fast"):
        if mode == "silicon" or "l1_accumulate" in option:
            with pytest.raises(FormatError, match=f"matmul: {told}"):
                numerics.matmul(x, x, mode=mode, **option)
            with pytest.raises(FormatError, match=f"emulate: {told}"):
                numerics.emulate(B8, mode=mode, **option)


@pytest.mark.parametrize("packer", [[], {}, None, "precise"])
def test_bad_packers_are_named(packer: Any) -> None:
    with pytest.raises(FormatError, match=r"packer is .*; allowed: packer, packer_precise"):
        numerics.emulate(B8, mode="silicon", packer=packer)
