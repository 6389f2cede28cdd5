"""The ops in PyTorch: gradients, layouts, in place and out=, vmap, torch.compile, opcheck."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.numerics.inputs import generator
from torch_loom import _C, numerics
from torch_loom import ops as op_table
from torch_loom.errors import FormatError, OperandError, PackedDataError
from torch_loom.numerics import DataFormat, ExponentFamily, MathFidelity

ops = torch.ops.loom_numerics
B8 = DataFormat.Bfp8_b
HIFI2, BF16 = MathFidelity.HiFi2.value, DataFormat.Float16_b.value


def random(*shape: int, seed: int = 3, **kwargs: Any) -> Tensor:
    return torch.randn(shape, generator=generator(seed), **kwargs)


# ---- PyTorch's own check of an op: schema, autograd registration, fake tensors, AOTAutograd

CONV = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
CALLS: dict[str, Callable[[bool], tuple[Any, tuple[Any, ...]]]] = {
    "quantize": lambda grad: (ops.quantize.default, (random(3, 20).requires_grad_(grad), B8.value)),
    "quantize_": lambda grad: (ops.quantize_.default, (random(3, 20), B8.value)),
    "quantize.out": lambda grad: (ops.quantize.out, (random(3, 20), B8.value, 255)),
    "quantize_counted": lambda grad: (
        ops.quantize_counted.default,
        (random(3, 20).requires_grad_(grad), B8.value),
    ),
    "pack": lambda grad: (ops.pack.default, (random(3, 40), B8.value)),
    "unpack": lambda grad: (ops.unpack.default, (ops.pack(random(3, 40), B8.value), B8.value, [3, 40])),
    "operand": lambda grad: (ops.operand.default, (random(3, 20).requires_grad_(grad), 1, HIFI2)),
    "matmul": lambda grad: (
        ops.matmul.default,
        (random(2, 3, 20).requires_grad_(grad), random(20, 5).requires_grad_(grad), HIFI2, BF16),
    ),
    "strict matmul": lambda grad: (
        ops.matmul.default,
        (
            random(3, 20).requires_grad_(grad),
            random(20).requires_grad_(grad),
            HIFI2,
            BF16,
            True,
            B8.value,
            B8.value,
        ),
    ),
    "linear": lambda grad: (
        ops.linear.default,
        (
            random(3, 20).requires_grad_(grad),
            random(5, 20).requires_grad_(grad),
            random(5).requires_grad_(grad),
            HIFI2,
            BF16,
        ),
    ),
    "convolution": lambda grad: (
        ops.convolution.default,
        (
            random(2, 3, 6, 6).requires_grad_(grad),
            random(4, 3, 3, 3).requires_grad_(grad),
            random(4).requires_grad_(grad),
            *CONV,
            HIFI2,
            BF16,
        ),
    ),
    "convolution_backward": lambda grad: (
        ops.convolution_backward.default,
        (random(2, 4, 6, 6), random(2, 3, 6, 6), random(4, 3, 3, 3), *CONV, HIFI2, BF16, [True, True]),
    ),
}


@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name: str, grad: bool) -> None:
    op, arguments = CALLS[name](grad)
    keywords = {"out": torch.empty(3, 20)} if name == "quantize.out" else {}
    torch.library.opcheck(op, arguments, keywords)


def test_every_op_is_checked() -> None:
    checked = {op.name() for op, _ in (call(False) for call in CALLS.values())}
    public = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("loom_numerics::") and not name.startswith("loom_numerics::_")
    }
    # matmul.out is tested with quantize.out's way of writing, below.
    assert {f"{name}" for name in public} - {"loom_numerics::matmul.out"} == checked


def test_every_op_is_in_the_op_table() -> None:
    for op in (call(False)[0] for call in (*CALLS.values(), lambda grad: (ops.matmul.out,))):
        facts = _C.op_facts(op._schema.name, op._schema.overload_name)
        assert facts["shape_class"] == op_table.family_of(op.name()).shape_class, op
        assert op_table.has_entry(op.name()), op


# ---- Gradients


def test_gradients_go_straight_through() -> None:
    x = random(3, 20).requires_grad_()
    weights = random(3, 20, seed=4)
    (numerics.quantize(x, DataFormat.Bfp2_b) * weights).sum().backward()
    assert torch.equal(x.grad, weights)  # type: ignore[arg-type]


def test_gradients_in_a_format() -> None:
    x = random(3, 20).requires_grad_()
    weights = random(3, 20, seed=4)
    (ops.quantize(x, B8.value, 255, DataFormat.Bfp4_b.value) * weights).sum().backward()
    assert torch.equal(x.grad, numerics.quantize(weights, DataFormat.Bfp4_b))  # type: ignore[arg-type]


@pytest.mark.parametrize("shapes", [((5, 20), (20, 4)), ((20,), (20, 4)), ((5, 20), (20,)), ((20,), (20,)),
                                    ((2, 5, 20), (20, 4)), ((2, 5, 20), (2, 20, 4)), ((3, 1, 5, 20), (2, 20,
                                    4)), ((5, 20), (2, 20, 4))], ids=str)  # fmt: skip
@pytest.mark.parametrize("mode", ["fast", "strict"])
def test_gradients_of_matmul_are_products_by_their_own_positions(mode: str, shapes: Any) -> None:
    how: dict[str, Any] = {"fidelity": MathFidelity.HiFi2, "accumulate": DataFormat.Float16_b, "mode": mode}
    a, b = random(*shapes[0]).requires_grad_(), random(*shapes[1], seed=4).requires_grad_()
    result = numerics.matmul(a, b, **how)
    grad = random(*result.shape, seed=5)
    grad_a, grad_b = torch.autograd.grad(result, (a, b), grad)
    left, right = (a.unsqueeze(0) if a.dim() == 1 else a), (b.unsqueeze(1) if b.dim() == 1 else b)
    grad = grad.reshape(
        *grad.shape[: grad.dim() - (a.dim() > 1) - (b.dim() > 1)], left.shape[-2], right.shape[-1]
    )
    wanted_a = numerics.matmul(grad, right.mT, **how).sum_to_size(left.shape).reshape(a.shape)
    assert torch.equal(grad_a, wanted_a)
    if right.dim() == 2:
        # One product over all rows, rounded once.
        wanted_b = numerics.matmul(left.reshape(-1, 20).mT, grad.reshape(-1, right.shape[-1]), **how)
    else:
        wanted_b = numerics.matmul(left.mT, grad, **how).sum_to_size(right.shape)
    assert torch.equal(grad_b, wanted_b.reshape(b.shape))


def test_gradients_of_conv2d_and_linear_agree_with_float32_within_the_fidelity() -> None:
    x, weight, bias = (
        random(2, 4, 6, 6).requires_grad_(),
        random(6, 2, 3, 3).requires_grad_(),
        random(6).requires_grad_(),
    )
    result = numerics.conv2d(x, weight, bias, 2, 1, groups=2)
    wanted = torch.nn.functional.conv2d(x, weight, bias, 2, 1, groups=2)
    torch.testing.assert_close(result, wanted, rtol=2**-8, atol=2**-7)
    grad = random(*result.shape, seed=5)
    for got, exact in zip(
        torch.autograd.grad(result, (x, weight, bias), grad),
        torch.autograd.grad(wanted, (x, weight, bias), grad),
        strict=True,
    ):
        torch.testing.assert_close(got, exact, rtol=2**-8, atol=2**-6)
    layer = torch.nn.Linear(20, 5)
    x = random(2, 3, 20).requires_grad_()
    got = ops.linear(x, layer.weight, layer.bias, MathFidelity.HiFi4.value, DataFormat.Float32.value)
    grad = random(2, 3, 5)
    for mine, exact in zip(
        torch.autograd.grad(got, (x, *layer.parameters()), grad),
        torch.autograd.grad(layer(x), (x, *layer.parameters()), grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, exact, rtol=2**-8, atol=2**-7)


def test_second_derivatives() -> None:
    a, b = random(3, 4).requires_grad_(), random(4, 3, seed=4).requires_grad_()
    (grad,) = torch.autograd.grad(numerics.matmul(a, b).square().sum(), a, create_graph=True)
    assert torch.autograd.grad(grad.sum(), b)[0].abs().sum() > 0


def test_forward_mode_is_refused() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(random(2, 2), random(2, 2))
        with pytest.raises(NotImplementedError, match="forward-mode"):
            numerics.quantize(dual, B8)


# ---- Layouts


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


# ---- vmap and torch.compile


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_vmap_of_conversions(dim: int) -> None:
    x = random(4, 5, 18)
    for fmt in (B8, DataFormat.Float16):
        got = torch.vmap(lambda t, fmt=fmt: numerics.quantize(t, fmt), in_dims=dim, out_dims=dim)(x)
        wanted = torch.stack([numerics.quantize(t, fmt) for t in x.unbind(dim)], dim)
        assert torch.equal(got, wanted)
    scalars = torch.vmap(lambda t: numerics.quantize(t, B8))(random(40))
    assert torch.equal(scalars, torch.stack([numerics.quantize(t, B8) for t in random(40)]))
    packed = torch.vmap(lambda t: numerics.pack(t, B8), in_dims=dim)(x)
    assert torch.equal(packed, torch.stack([numerics.pack(t, B8) for t in x.unbind(dim)]))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (2, 1)], ids=str)
@pytest.mark.parametrize(
    "shapes", [((5, 20), (20, 4)), ((20,), (20, 4)), ((5, 20), (20,)), ((2, 5, 20), (20, 4))], ids=str
)
def test_vmap_of_matmul(shapes: Any, dims: Any) -> None:
    inputs = [
        random(*shape) if dim is None else random(3, *shape).movedim(0, min(dim, len(shape)))
        for shape, dim in zip(shapes, dims, strict=True)
    ]
    in_dims = tuple(
        None if dim is None else min(dim, len(shape)) for shape, dim in zip(shapes, dims, strict=True)
    )
    how: dict[str, Any] = {
        "fidelity": MathFidelity.HiFi2,
        "accumulate": DataFormat.Float16_b,
        "mode": "strict",
    }
    got = torch.vmap(lambda a, b: numerics.matmul(a, b, **how), in_dims)(*inputs)
    for i in range(3):
        a, b = (x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True))
        assert torch.equal(got[i], numerics.matmul(a, b, **how))


def test_functional_gradients_per_sample() -> None:
    weight, xs = random(20, 4), random(6, 5, 20)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return numerics.quantize(numerics.matmul(x, weight, fidelity=MathFidelity.LoFi), B8).square().sum()

    got = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, xs)
    for i in range(6):
        w = weight.clone().requires_grad_()
        loss(w, xs[i]).backward()
        torch.testing.assert_close(got[i], w.grad)


def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = numerics.matmul(
        numerics.quantize(x, B8), w, fidelity=MathFidelity.HiFi3, out_format=DataFormat.Bfp4_b
    )
    z = numerics.unpack(numerics.pack(y.detach(), B8), B8, y.shape)
    return numerics.quantize_(y * 2, DataFormat.Lf8), z


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compile(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (5, 33):
        inputs = [random(rows, 20).requires_grad_(), random(20, 48).requires_grad_()]
        got, wanted = compiled(*inputs), program(*inputs)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        grads = [torch.autograd.grad(result[0].square().sum(), inputs) for result in (got, wanted)]
        assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


# ---- What a format cannot hold


def test_the_first_value_that_is_not_held_warns_once_by_name() -> None:
    numerics.nonfinite_total(reset=True)
    x = torch.tensor([1.0, float("inf"), float("nan")])
    with pytest.warns(UserWarning, match="quantize: 2 infinite or NaN values"):
        numerics.quantize(x, DataFormat.Lf8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numerics.quantize(x, B8)
    assert numerics.nonfinite_total() == (3, 1)
    assert numerics.nonfinite(numerics.quantize(x, DataFormat.Float16_b)) == (0, 0)
    numerics.nonfinite_total(reset=True)


def test_nonfinite_of_other_tensors_counts_what_is_there() -> None:
    x = torch.zeros(2, 20)
    x[0, 3], x[0, 18], x[1, 5] = float("nan"), float("inf"), float("nan")
    assert numerics.nonfinite(x) == (3, 2)
    changed = numerics.quantize(x, B8)
    assert numerics.nonfinite(changed) == (1, 2)
    changed.zero_()
    assert numerics.nonfinite(changed) == (0, 0)
    assert numerics.nonfinite(torch.arange(3)) == (0, 0)


# ---- Formats' facts


def test_facts_of_formats() -> None:
    values = {fmt.name: fmt.value for fmt in DataFormat}
    assert values == {
        "Float32": 0, "Float16": 1, "Bfp8": 2, "Bfp4": 3, "Float16_b": 5, "Bfp8_b": 6, "Bfp4_b": 7,
        "Int32": 8, "Lf8": 10, "Bfp2": 11, "UInt16": 12, "Int8": 14, "Bfp2_b": 15, "RawUInt8": 240,
        "RawUInt16": 241, "RawUInt32": 242, "Invalid": 255,
    }  # fmt: skip
    assert {f.name: f.value for f in MathFidelity} == {
        "LoFi": 0,
        "HiFi2": 2,
        "HiFi3": 3,
        "HiFi4": 4,
        "Invalid": 255,
    }
    for member in (*DataFormat, *MathFidelity):
        assert type(member).from_json(member.to_json()) is member  # type: ignore[attr-defined]
    sizes = {fmt: fmt.bytes_per_tile for fmt in DataFormat if fmt is not DataFormat.Invalid}
    assert (sizes[B8], sizes[DataFormat.Bfp4], sizes[DataFormat.Bfp2_b]) == (1088, 576, 320)
    assert (sizes[DataFormat.Float16], sizes[DataFormat.Float32], sizes[DataFormat.Int8]) == (
        2048,
        4096,
        1024,
    )
    assert B8.bytes_per_buffered_tile == 1120
    assert DataFormat.Bfp8.exponent_family is DataFormat.Lf8.exponent_family is ExponentFamily.A
    assert DataFormat.Float32.exponent_family is ExponentFamily.B
    assert DataFormat.Int8.exponent_family is ExponentFamily.INTEGER


@pytest.mark.parametrize("fmt", [fmt for fmt in DataFormat if fmt is not DataFormat.Invalid], ids=str)
def test_range_and_steps_are_those_of_values(fmt: DataFormat) -> None:
    low, high = fmt.range
    far = torch.tensor([3.4028234663852886e38, -3.4028234663852886e38]).unsqueeze(1)
    if fmt is not DataFormat.Float16_b:  # which rounds these up to infinity
        assert numerics.quantize(far, fmt).flatten().tolist() == [
            torch.tensor(high).item(),
            torch.tensor(low).item(),
        ]
    assert numerics.quantize(torch.tensor([1.0 + fmt.epsilon]), fmt).item() == min(1.0 + fmt.epsilon, high)
    assert numerics.quantize(torch.tensor([1.0 + fmt.epsilon / 4]), fmt).item() == 1.0
    if not fmt.is_integer and fmt.smallest > 2.0**-120:
        beside = [2.0 ** round(torch.tensor(fmt.smallest * 2 ** (fmt.significand_bits - 1)).log2().item())]
        row = torch.tensor([*beside, fmt.smallest, fmt.smallest / 4])
        if fmt.is_block:
            assert numerics.quantize(row, fmt)[1:].tolist() == [fmt.smallest, 0.0]
        else:
            assert numerics.quantize(row[1:], fmt).tolist() == [fmt.smallest, 0.0]


# ---- Bad input


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
    with pytest.raises(FormatError, match="mode is 'exact'; allowed: fast, strict"):
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
        numerics.matmul(random(3, 4), random(5, 4), mode="strict")


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
