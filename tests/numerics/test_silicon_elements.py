"""Elementwise instructions, sums over dimensions and the vector unit's functions, ``mode="silicon"``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.numerics import silicon_reference as reference
from tests.numerics.inputs import random
from torch_loom.errors import FormatError
from torch_loom.numerics import DataFormat, MathFidelity, emulate, quantize

ops = torch.ops.loom_numerics
B8, BF16, HALF = DataFormat.Bfp8_b, DataFormat.Float16_b, DataFormat.Float16
# Destination, accumulate format, an operand's format in registers, whether exponents have 5 bits.
UNITS = [(0, 5, 5, False), (1, 1, 1, True), (2, 0, 4, False), (2, 0, 1, True)]
PASSES = {MathFidelity.LoFi: 1, MathFidelity.HiFi2: 2, MathFidelity.HiFi3: 3, MathFidelity.HiFi4: 4}


@pytest.fixture(params=["", "baseline"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    assert ops._use_kernels(request.param)
    yield
    ops._use_kernels("")


def values(count: int, dst: int, short: bool, seed: int) -> Tensor:
    """Numbers of all exponents that a register holds, zeros and what are infinities elsewhere among them."""
    made = torch.Generator().manual_seed(seed)
    spread = torch.randint(-14, 15, (count,), generator=made).float()
    usual = torch.randn(count, generator=made) * torch.exp2(spread)
    wild = torch.randint(-(2**31), 2**31 - 1, (count,), generator=made).to(torch.int32).view(torch.float32)
    chosen = usual if short else torch.where(torch.rand(count, generator=made) < 0.3, wild, usual)
    chosen = torch.where(torch.rand(count, generator=made) < 0.05, 0.0, chosen)
    kept = chosen.view(torch.int32) & (~0xFFFF if dst == 0 else ~0x1FFF)
    result = kept.view(torch.float32)
    if short:
        result = torch.where(result.abs() < 2**-14, 0.0, result).clamp(-131008.0, 131008.0)
    return result


def words(values: Tensor, short: bool) -> Tensor:
    bits = values.view(torch.int32)
    exponent = bits >> 23 & 0xFF
    if short:
        exponent = torch.where(exponent <= 112, 0, (exponent - 112).clamp(max=31))
    return (bits >> 31 & 1) << 18 | exponent << 10 | (bits >> 13 & 0x3FF)


def destination(dst: int, values: Tensor) -> Tensor:
    bits = values.view(torch.int32)
    if dst == 0:
        return bits >> 16 & 0xFFFF
    if dst == 2:
        return bits
    exponent = bits >> 23 & 0xFF
    return (bits >> 16 & 0x8000) | torch.where(
        exponent <= 112, 0, (exponent - 112) << 10 | (bits >> 13 & 0x3FF)
    )


@pytest.mark.parametrize("chip", [0, 1], ids=["wormhole_b0", "blackhole"])
@pytest.mark.parametrize(("dst", "accumulate", "fmt", "short"), UNITS)
def test_vectors_are_the_instructions_of_the_golden_model(
    kernels: None, chip: int, dst: int, accumulate: int, fmt: int, short: bool
) -> None:
    count = 20_003
    a, b = values(count, dst, short, 1), values(count, dst, short, 2)
    # Operands that cancel, and that are each other's half.
    b[::7], b[3::11] = -a[::7], a[3::11] * 0.5
    b = torch.where(b.abs() < 2**-14, 0.0, b) if short else b
    mode = 1 | chip << 1 | (4 if short else 0)
    for operation in range(3):
        for fidelity, passes in PASSES.items():
            start = torch.zeros(count, dtype=torch.int32)
            single = ops.tensix_elementwise(
                words(a, short), words(b, short), start, fmt, dst, chip, operation, range(passes), False
            )
            found = ops.elementwise(a, b, operation, fidelity.value, accumulate, mode)
            expected = single if dst == 2 else single & 0xFFFF
            assert torch.equal(destination(dst, found), expected), (operation, fidelity)


@pytest.mark.parametrize("fmt", [B8, BF16, HALF], ids=str)
@pytest.mark.parametrize(
    ("operation", "call"),
    [
        (0, lambda a, b: a * b),
        (0, torch.mul),
        (1, lambda a, b: a + b),
        (1, lambda a, b: a.add(b, alpha=1)),
        (2, lambda a, b: a - b),
        (2, torch.subtract),
    ],
)
def test_functions_of_two(fmt: DataFormat, operation: int, call: Callable[[Tensor, Tensor], Tensor]) -> None:
    a, b = random(3, 5, 40), random(5, 40)
    short = fmt is HALF
    accumulate = HALF if short else BF16
    with emulate(fmt, fidelity=MathFidelity.HiFi2, mode="silicon"):
        found = call(a, b)
    left, right = (quantize(each, fmt, rule="host" if fmt.is_block else "pybuda") for each in (a, b))
    dst = ops.elementwise(
        left, right, operation, MathFidelity.HiFi2.value, accumulate.value, 1 | (4 if short else 0)
    )
    assert torch.equal(found, quantize(dst, fmt, rule="packer"))


def test_in_place_and_out_are_the_same() -> None:
    a, b = random(4, 32), random(4, 32)
    with emulate(B8, mode="silicon"):
        expected = a + b
        into, out = a.clone(), torch.empty(4, 32)
        into += b
        torch.add(a, b, out=out)
    assert torch.equal(into, expected)
    assert torch.equal(out, expected)


def test_gradients_of_products_are_products_of_the_chip() -> None:
    a, b = random(4, 32).requires_grad_(), random(32).requires_grad_()
    out = ops.elementwise(a, b, 0, MathFidelity.HiFi2.value, BF16.value, 1)
    grad = random(4, 32)
    out.backward(grad)
    of_a = ops.elementwise(grad, b.detach(), 0, MathFidelity.HiFi2.value, BF16.value, 1)
    of_b = ops.elementwise(a.detach(), grad, 0, MathFidelity.HiFi2.value, BF16.value, 1)
    assert a.grad is not None
    assert torch.equal(a.grad, of_a)
    assert b.grad is not None
    assert torch.equal(b.grad, of_b.sum(0))


FUNCTIONS = {
    "reciprocal": torch.reciprocal,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("fmt", [BF16, DataFormat.Float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_the_programs_of_the_golden_model(name: str, fmt: DataFormat) -> None:
    x = random(4, 100).abs() + 0.5
    is_wide = fmt is DataFormat.Float32
    with emulate(fmt, mode="silicon"):
        found = FUNCTIONS[name](x)
    given = x if is_wide else x.bfloat16().float()
    bits = ops.tensix_function(given.view(torch.int32), list(FUNCTIONS).index(name), is_wide, 0)
    stored = bits if is_wide else bits & ~0xFFFF
    assert torch.equal(found, stored.view(torch.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_functions(name: str) -> None:
    x = (random(64).abs() + 0.5).requires_grad_()
    ops.function(x, list(FUNCTIONS).index(name), DataFormat.Float32.value, 1).sum().backward()
    y = x.detach().requires_grad_()
    FUNCTIONS[name](y).sum().backward()
    # Tables of three lines are not near their functions.
    is_table = name in ("tanh", "sigmoid")
    torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0.3 if is_table else 1e-3)


def test_blackholes_reciprocal_has_no_rule() -> None:
    x = random(8).abs() + 0.5
    with pytest.raises(ValueError, match="no rule for function 0 on Blackhole"):
        ops.function(x, 0, BF16.value, 3)
    with emulate(BF16, mode="silicon", chip="blackhole"):
        found = x.reciprocal()
    torch.testing.assert_close(found, 1 / x, rtol=0.01, atol=0)


def sum_of_faces(columns: Tensor, factor: float, passes: int) -> Tensor:
    """GAPOOL by the rules: of each 16 values all passes, then of the next."""
    depth = -(-columns.shape[0] // 16) * 16
    data = torch.zeros(depth, columns.shape[1])
    data[: columns.shape[0]] = columns
    a = words(data.T.contiguous(), False).numpy().astype(np.int64)
    scaler = words(torch.full(a.shape, factor), False).numpy().astype(np.int64)
    dst = np.zeros(len(a), np.int64)
    for face in range(0, depth, 16):
        part = slice(face, face + 16)
        for phase in range(passes):
            dst = reference.mvmul(0, 0, False, (0x3F8, 0x3F8), phase, scaler[:, part], a[:, part], dst)
    return torch.from_numpy((dst << 16).astype(np.uint32).view(np.int32)).view(torch.float32)


@pytest.mark.parametrize("depth", [5, 16, 100])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_are_those_of_gapool(name: str, depth: int) -> None:
    x = random(depth, 24).bfloat16().float()
    with emulate(BF16, fidelity=MathFidelity.HiFi2, mode="silicon"):
        found = getattr(x, name)(0)
    factor = 1.0 if name == "sum" else torch.tensor(1 / depth).bfloat16().item()
    assert torch.equal(found, quantize(sum_of_faces(x, factor, 2), BF16, rule="packer"))


REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "dims": lambda x: x.mean((2, -1), keepdim=True),
    "keyword": lambda x: torch.sum(x, dim=1),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "pool": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "pool1d": lambda x: functional.avg_pool1d(x[0], 2),
    "divisor": lambda x: functional.avg_pool2d(x, (2, 3), divisor_override=5),
    "ceil": lambda x: functional.avg_pool2d(x, 2, ceil_mode=True),
    "several": lambda x: functional.adaptive_avg_pool2d(x, 3),
    "dtype": lambda x: x.sum(0, dtype=torch.float64),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_have_the_shapes_of_pytorchs(name: str) -> None:
    x = random(2, 3, 9, 9).requires_grad_()
    with emulate(BF16, mode="silicon"):
        found = REDUCTIONS[name](x)
    found.sum().backward()
    y = x.detach().requires_grad_()
    expected = REDUCTIONS[name](y)
    expected.sum().backward()
    torch.testing.assert_close(found, expected, rtol=0.03, atol=0.3)
    torch.testing.assert_close(x.grad, y.grad, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(7),
        lambda x: x.mean((0, 0)),
        lambda x: functional.avg_pool2d(x, 20),
        lambda x: functional.avg_pool2d(x, ()),
        lambda x: functional.adaptive_avg_pool2d(x, (1,)),
        lambda x: functional.adaptive_avg_pool2d(x[0, 0], (1, 1, 1)),
        lambda x: functional.gelu(x, approximate="foo"),
        lambda x: x + random(3, 2, 5, 5),
    ],
)
def test_what_pytorch_refuses_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    x = random(2, 3, 9, 9)
    with pytest.raises((IndexError, RuntimeError, ValueError)) as expected:
        call(x)
    with emulate(BF16, mode="silicon"), pytest.raises(expected.type):
        call(x)


def test_bad_modes() -> None:
    x = random(4)
    with pytest.raises(ValueError, match="no rule for sums in format 0 of mode 0"):
        ops.elementwise(x, x, 0, 2, 0, 0)
    with pytest.raises(ValueError, match="operation is 3"):
        ops.elementwise(x, x, 3, 2, 0, 1)
    with (
        pytest.raises(FormatError, match="no rule of silicon for Lf8"),
        emulate(DataFormat.Lf8, mode="silicon"),
    ):
        x + x


def test_linear_layers_convert_weights_once_and_add_biases_as_elements() -> None:
    x, weight, bias = random(6, 64), torch.nn.Parameter(random(40, 64)), torch.nn.Parameter(random(40))
    with torch.no_grad(), emulate(B8, fidelity=MathFidelity.HiFi2, mode="silicon"):
        found = functional.linear(x, weight, bias)
    left, right, added = (quantize(each.detach(), B8, rule="host") for each in (x, weight, bias))
    sums = ops.matmul(left, right.T, MathFidelity.HiFi2.value, BF16.value, 1)
    sums = ops.elementwise(sums, added, 1, MathFidelity.HiFi2.value, BF16.value, 1)
    assert torch.equal(found, quantize(sums, B8, rule="packer"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.add_(1 / 3),
        lambda x: x.sub_(1.3),
        lambda x: x.add_(random(4, 32), alpha=0.1),
        lambda x: x.mul_(1 / 3),
    ],
)
def test_what_has_no_rule_is_packed_in_place_too(call: Callable[[Tensor], Tensor]) -> None:
    with emulate(BF16, mode="silicon"):
        x = random(4, 32) * random(4, 32, seed=1)
        found = call(x)
    assert torch.equal(found, found.bfloat16().float())


@pytest.mark.parametrize(
    ("call", "same"),
    [
        (lambda x: x.sum(axis=1), lambda x: x.sum(1)),
        (lambda x: torch.sum(input=x, dim=1), lambda x: x.sum(1)),
        (lambda x: x.mean(1, keepdims=True), lambda x: x.mean(1, keepdim=True)),
        (lambda x: x.mean(1, dtype=torch.float32), lambda x: x.mean(1)),
        (lambda x: torch.mul(x, other=x), lambda x: x * x),
        (lambda x: functional.avg_pool1d(input=x, kernel_size=2), lambda x: functional.avg_pool1d(x, 2)),
    ],
)
def test_spellings_are_one(call: Callable[[Tensor], Tensor], same: Callable[[Tensor], Tensor]) -> None:
    x = random(3, 70)
    with emulate(BF16, mode="silicon"):
        assert torch.equal(call(x), same(x))


def test_dimensions_are_summed_one_after_another() -> None:
    x = random(64, 1024).square()
    with emulate(BF16, mode="silicon"):
        found, parts = x.mean(), x.mean(1)
    assert torch.allclose(found, x.mean(), rtol=0.05)
    assert torch.allclose(parts, x.mean(1), rtol=0.1)
