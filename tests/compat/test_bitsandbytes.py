"""The kernels that bitsandbytes finds for its ops, without bitsandbytes; tests/libraries runs the library."""

from __future__ import annotations

import importlib.metadata
import math
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.conftest import PythonRunner
from torch_loom.compat.bitsandbytes import KERNELS, blocks, int8, optimizers, paged, products

PROGRAMS = Path(__file__).parent / "programs" / "bitsandbytes"

NF4, FP4 = blocks.NF4_VALUES, blocks.FP4_VALUES
SIGNED_MAP = torch.cat([torch.linspace(-0.99, -0.01, 127), torch.linspace(0.0, 1.0, 129)])
UNSIGNED_MAP = torch.linspace(0.0, 1.0, 256)


def nearest_even(value: float, code: list[float]) -> int:
    """Search a map as the library's kernel does: halving around even indices, then one comparison."""
    pivot, lower, upper = 127, 0, 255
    for step in (64, 32, 16, 8, 4, 2, 1):
        if value > code[pivot]:
            lower, pivot = pivot, pivot + step
        else:
            upper, pivot = pivot, pivot - step
    if value > code[pivot]:
        return upper if value > float(torch.tensor(code[upper] + code[pivot]) * 0.5) else pivot
    return lower if value < float(torch.tensor(code[lower] + code[pivot]) * 0.5) else pivot


def test_codes_of_8_bits_are_those_of_a_search() -> None:
    code = SIGNED_MAP.tolist()
    middles = ((SIGNED_MAP[1:] + SIGNED_MAP[:-1]) * 0.5).tolist()
    draw = random.Random(0)
    values = [*code, *middles, *(draw.uniform(-1, 1) for _ in range(500)), math.nan, 0.0, -1.0, 1.0]
    values = torch.tensor(values).tolist()
    codes = blocks.map_codes(torch.tensor(values, device="loom"), SIGNED_MAP.to("loom"))
    assert codes.tolist() == [nearest_even(value, code) for value in values]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_blocks_of_8_bits_keep_values_within_the_map(dtype: torch.dtype) -> None:
    values = torch.randn(3, 101, generator=torch.Generator().manual_seed(0)).to(dtype)
    codes, absmax = blocks.quantize_blockwise(values.to("loom"), SIGNED_MAP.to("loom"), 64)
    assert codes.dtype == torch.uint8
    assert codes.shape == values.shape
    assert absmax.tolist() == [chunk.float().abs().max().item() for chunk in values.view(-1).split(64)]
    back = blocks.dequantize_blockwise(codes, absmax, SIGNED_MAP.to("loom"), 64, dtype)
    assert back.dtype == dtype
    widest = 0.01 * values.float().abs().max().item()
    torch.testing.assert_close(back.cpu().float(), values.float(), rtol=1e-2, atol=widest)
    out = torch.empty(values.shape, dtype=dtype, device="loom")
    blocks.dequantize_blockwise_out(codes, absmax, SIGNED_MAP.to("loom"), 64, dtype, out)
    assert torch.equal(out, back)


@pytest.mark.parametrize(("kind", "table"), [("nf4", NF4), ("fp4", FP4)])
@pytest.mark.parametrize("count", [1, 64, 65, 130])
def test_codes_of_4_bits_are_the_nearest(kind: str, table: tuple[float, ...], count: int) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(count))
    packed, absmax = blocks.quantize_4bit(values.to("loom"), 64, kind, torch.uint8)
    assert packed.shape == ((count + 1) // 2, 1)
    bytes_ = packed.flatten().tolist()
    for index, value in enumerate(values.tolist()):
        scaled = value / absmax[index // 64].item()
        code = bytes_[index // 2] >> 4 if index % 2 == 0 else bytes_[index // 2] & 15
        assert abs(table[code] - scaled) <= min(abs(entry - scaled) for entry in table) + 1e-6
    back = blocks.dequantize_4bit(packed, absmax, 64, kind, (count,), torch.float32)
    for index, value in enumerate(back.tolist()):
        code = bytes_[index // 2] >> 4 if index % 2 == 0 else bytes_[index // 2] & 15
        assert value == torch.tensor(table[code]).mul(absmax[index // 64].cpu()).item()


def test_a_block_of_zeros_has_the_codes_of_a_gpu() -> None:
    # Zero times the inverse of zero is no number: every comparison of the search fails.
    zeros = torch.zeros(64, device="loom")
    for kind in ("nf4", "fp4"):
        packed, absmax = blocks.quantize_4bit(zeros, 64, kind, torch.uint8)
        assert packed.unique().tolist() == [0]
        assert blocks.dequantize_4bit(packed, absmax, 64, kind, (64,), torch.float32).abs().sum().item() == 0
    codes, _ = blocks.quantize_blockwise(zeros, SIGNED_MAP.to("loom"), 64)
    assert codes.unique().tolist() == [0]


def test_bytes_of_4_bits_are_stored_in_other_dtypes() -> None:
    values = torch.randn(8, 32, device="loom")
    plain, absmax = blocks.quantize_4bit(values, 64, "nf4", torch.uint8)
    stored, _ = blocks.quantize_4bit(values, 64, "nf4", torch.bfloat16)
    assert stored.shape == (64, 1)
    assert torch.equal(stored.view(torch.uint8).flatten(), plain.flatten())
    back = [
        blocks.dequantize_4bit(packed, absmax, 64, "nf4", (8, 32), torch.float16)
        for packed in (plain, stored)
    ]
    assert torch.equal(*back)


def test_products_with_quantised_scales_are_captured() -> None:
    weight, values = torch.randn(32, 64, device="loom"), torch.randn(4, 64, device="loom")
    bias = torch.randn(32, device="loom")
    packed, absmax = blocks.quantize_4bit(weight, 64, "nf4", torch.uint8)
    code = SIGNED_MAP.to("loom")
    offset = absmax.mean()
    scale_codes, scale_absmax = blocks.quantize_blockwise(absmax - offset, code, 256)
    graph = torch.loom.LoomGraph()
    with torch.loom.graph(graph):
        product = products.gemm_4bit(
            values, packed, (32, 64), scale_absmax, 64, "nf4", bias, scale_codes, code, offset
        )
    graph.replay()
    scales = blocks.dequantize_blockwise(scale_codes, scale_absmax, code, 256, torch.float32) + offset
    restored = blocks.dequantize_4bit(packed, scales, 64, "nf4", (32, 64), torch.float32)
    torch.testing.assert_close(product, values @ restored.t() + bias)
    vector = products.gemv_4bit(values[:1], packed, (32, 64), scales, torch.tensor(NF4, device="loom"), 64)
    torch.testing.assert_close(vector, values[:1] @ restored.t())


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 3, 5), (20, 8, 8), (4, 2048, 9)])
def test_integer_products_are_exact(rows: int, inner: int, columns: int) -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.randint(-128, 128, (2, rows, inner), dtype=torch.int8, generator=draw)
    weight = torch.randint(-128, 128, (columns, inner), dtype=torch.int8, generator=draw)
    expected = (values.long() @ weight.long().t()).int()
    product = int8.linear_matmul(values.to("loom"), weight.to("loom"))
    assert product.is_contiguous()
    assert torch.equal(product.cpu(), expected)
    out = torch.empty_like(product)
    int8.linear_matmul_out(values.to("loom"), weight.to("loom"), out)
    assert torch.equal(out.cpu(), expected)


def test_outliers_do_not_count_for_the_scale() -> None:
    values = torch.tensor([[1.0, -2.0, 8.0, 0.5], [0.25, 1.0, -1.0, 0.0], [0.0, 0.0, 7.0, 0.0]]).half()
    codes, scales, columns = int8.vectorwise_quant(values.to("loom"), 6.0)
    assert columns is not None
    assert columns.tolist() == [2]
    assert scales.tolist() == [2.0, 1.0, 0.0]
    # 63.5 and 31.75 are rounded to even and to nearest.
    assert codes.tolist() == [[64, -127, 0, 32], [32, 127, 0, 0], [0, 0, 0, 0]]
    codes, scales, columns = int8.vectorwise_quant(values.to("loom"))
    assert columns is None
    assert scales.tolist() == [8.0, 1.0, 7.0]
    assert codes[0].tolist() == [16, -32, 127, 8]


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (2, 0, 8)])
def test_nothing_is_quantised_to_nothing(shape: tuple[int, ...]) -> None:
    codes, scales, columns = int8.vectorwise_quant(torch.ones(shape, dtype=torch.float16, device="loom"), 6.0)
    assert codes.shape == shape
    assert scales.tolist() == [0.0] * math.prod(shape[:-1])
    assert columns is not None
    assert columns.numel() == 0


def test_both_directions_are_quantised() -> None:
    values = torch.tensor([[1.0, -4.0], [2.0, 2.0]], device="loom", dtype=torch.float16)
    by_rows, by_columns, rows, columns, _ = int8.double_quant(values)
    assert (rows.tolist(), columns.tolist()) == ([4.0, 2.0], [2.0, 4.0])
    assert by_rows.tolist() == [[32, -127], [127, 127]]
    assert by_columns.tolist() == [[64, -127], [127, 64]]


def test_integer_products_are_scaled_back() -> None:
    product = torch.tensor([[127 * 127, 0], [-127 * 127, 127]], dtype=torch.int32, device="loom")
    rows, columns = torch.tensor([2.0, 3.0], device="loom"), torch.tensor([1.0, 0.5], device="loom")
    bias = torch.tensor([1.0, -1.0], device="loom")
    expected = torch.tensor([[3.0, -1.0], [-2.0, -1 + 1.5 / 127]])
    for dtype in (torch.float16, torch.float32):
        out = int8.mm_dequant(product, rows, columns, dtype, bias.to(dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.cpu().float(), expected, rtol=1e-3, atol=1e-3)


class Reference:
    """What the optimizers do to one value, in Python's floats."""

    beta1, beta2, beta3, alpha, eps, decay, lr = 0.9, 0.95, 0.99, 2.0, 1e-6, 0.1, 0.05

    def __init__(self, name: str, is_coded: bool) -> None:
        self.name, self.is_coded = name, is_coded

    def step(
        self, number: int, value: float, gradient: float, states: list[float]
    ) -> tuple[float, list[float]]:
        """Return the value and its states after a step."""
        plain, keep = gradient, 1 - self.lr * self.decay
        if self.name in ("momentum", "lars", "rmsprop", "adagrad"):
            gradient += self.decay * value
            if not self.is_coded:
                plain = gradient
        if self.name in ("momentum", "lars"):
            moment = gradient if number == 1 else self.beta1 * states[0] + gradient
            return value - self.lr * moment, [moment]
        if self.name == "rmsprop":
            square = self.beta1 * states[0] + (1 - self.beta1) * gradient**2
            return value - self.lr * plain / (math.sqrt(square) + self.eps), [square]
        if self.name == "adagrad":
            square = states[0] + gradient**2
            return value - self.lr * plain / (math.sqrt(square) + self.eps), [square]
        if self.name == "lion":
            mixed = self.beta1 * states[0] + (1 - self.beta1) * gradient
            moment = self.beta2 * states[0] + (1 - self.beta2) * gradient
            return value * keep - self.lr * math.copysign(1, mixed), [moment]
        moment = self.beta1 * states[0] + (1 - self.beta1) * gradient
        square = self.beta2 * states[-1] + (1 - self.beta2) * gradient**2
        correction1, correction2 = 1 - self.beta1**number, math.sqrt(1 - self.beta2**number)
        divisor = math.sqrt(square) / correction2 + self.eps
        if self.name == "ademamix":
            slow = self.beta3 * states[1] + (1 - self.beta3) * gradient
            return (value - self.lr * (moment / correction1 + self.alpha * slow) / divisor) * keep, [
                moment,
                slow,
                square,
            ]
        return (value - self.lr * moment / correction1 / divisor) * keep, [moment, square]

    def arguments(self, number: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the coefficients as kernels take them, around the step's number and the rate."""
        return (self.beta1, self.beta2, self.beta3, self.alpha, self.eps), (self.decay, number, self.lr)


@pytest.mark.parametrize("name", optimizers.NAMES_32BIT)
def test_steps_with_float32_state(name: str) -> None:
    draw = torch.Generator().manual_seed(0)
    reference = Reference(name, is_coded=False)
    parameter, count = torch.randn(5, generator=draw), {"ademamix": 3, "adam": 2, "lamb": 2}.get(name, 1)
    states = [[0.0] * count for _ in range(5)]
    on_device = parameter.to("loom")
    state1 = torch.zeros((2, 5) if name == "ademamix" else 5, device="loom")
    state2 = torch.zeros(5, device="loom") if count > 1 else None
    values = parameter.tolist()
    for number in (1, 2, 3):
        gradient = torch.randn(5, generator=draw)
        betas, (decay, _, lr) = reference.arguments(number)
        optimizers.update_32bit(
            name,
            gradient.to("loom"),
            on_device,
            state1,
            state2,
            None,
            0.0,
            0.0,
            *betas,
            decay,
            number,
            lr,
            1.0,
        )
        steps = [
            reference.step(number, *each) for each in zip(values, gradient.tolist(), states, strict=True)
        ]
        values, states = [value for value, _ in steps], [state for _, state in steps]
        torch.testing.assert_close(on_device.cpu(), torch.tensor(values), rtol=1e-4, atol=1e-5)
    expected = torch.tensor(states).t()
    kept = state1.cpu().view(-1, 5)
    torch.testing.assert_close(
        kept if state2 is None else torch.cat([kept, state2.cpu().view(1, 5)]), expected
    )


@pytest.mark.parametrize("name", optimizers.NAMES_8BIT)
def test_steps_with_state_of_8_bits(name: str) -> None:
    size, draw = 300, torch.Generator().manual_seed(0)
    reference = Reference(name, is_coded=True)
    count = {"ademamix": 3, "adam": 2}.get(name, 1)
    parameter = torch.randn(size, generator=draw).to("loom")
    map1, map2 = SIGNED_MAP.to("loom"), UNSIGNED_MAP.to("loom")
    rows = (2,) if name == "ademamix" else ()
    codes1, absmax1 = (
        torch.zeros(*rows, size, dtype=torch.uint8, device="loom"),
        torch.zeros(*rows, 2, device="loom"),
    )
    codes2, absmax2 = (codes1.new_zeros(size), absmax1.new_zeros(2)) if count > 1 else (None, None)

    def states() -> list[list[float]]:
        kept = [
            blocks.dequantize_blockwise(codes, absmax, map1, 256, torch.float32)
            for codes, absmax in zip(codes1.view(-1, size), absmax1.view(-1, 2), strict=True)
        ]
        if codes2 is not None and absmax2 is not None:
            kept.append(blocks.dequantize_blockwise(codes2, absmax2, map2, 256, torch.float32))
        return torch.stack(kept, 1).tolist()

    for number in (1, 2, 3):
        gradient = torch.randn(size, generator=draw)
        before = states()
        steps = [
            reference.step(number, *each)
            for each in zip(parameter.tolist(), gradient.tolist(), before, strict=True)
        ]
        betas, (decay, _, lr) = reference.arguments(number)
        optimizers.update_8bit_blockwise(
            *(name, gradient.to("loom"), parameter, codes1, codes2, *betas, number, lr),
            *(map1, map2 if count > 1 else None, absmax1, absmax2, decay, 1.0),
        )
        expected = torch.tensor([value for value, _ in steps])
        torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-4, atol=1e-5)
        wanted, kept = torch.tensor([state for _, state in steps]), torch.tensor(states())
        for part in range(count):
            absmax = wanted[:, part].abs().max().item()
            torch.testing.assert_close(kept[:, part], wanted[:, part], rtol=0, atol=absmax * 0.011)
            assert bool((kept[:, part].sign() * wanted[:, part].sign() >= 0).all())


def test_two_states_are_reset_where_the_gradient_is_not_finite() -> None:
    parameter, gradient = torch.ones(256, device="loom"), torch.ones(256, device="loom")
    gradient[3], gradient[4] = math.nan, math.inf
    codes = torch.full((2, 256), 200, dtype=torch.uint8, device="loom")
    absmax = torch.ones(2, 1, device="loom")
    map1, map2 = SIGNED_MAP.to("loom"), UNSIGNED_MAP.to("loom")
    optimizers.update_8bit_blockwise(
        *("adam", gradient, parameter, codes[0], codes[1], 0.9, 0.99, 0.0, 0.0, 1e-8, 1, 0.1),
        *(map1, map2, absmax[0], absmax[1], 0.1, 1.0),
    )
    assert parameter[3:5].tolist() == [1.0, 1.0]
    assert bool((parameter[5:] < 1.0).all())
    assert [map1[codes[0, 3].int()].item(), map2[codes[1, 4].int()].item()] == [0.0, 0.0]


def test_zero_gradients_are_skipped_where_that_is_asked_for() -> None:
    parameter, gradient = torch.ones(4, device="loom"), torch.tensor([1.0, 0.0, 2.0, 0.0], device="loom")
    state1, state2 = torch.ones(4, device="loom"), torch.ones(4, device="loom")
    optimizers.update_32bit(
        *("adam", gradient, parameter, state1, state2, None, 0.0, 0.0, 0.9, 0.99, 0.0, 0.0, 1e-8, 0.0, 1),
        *(0.1, 1.0, True),
    )
    assert parameter[[1, 3]].tolist() == state1[[1, 3]].tolist() == state2[[1, 3]].tolist() == [1.0, 1.0]
    assert bool((parameter[[0, 2]] < 1.0).all())


def test_updates_are_limited_by_their_norm() -> None:
    gradient = torch.tensor([3.0, 4.0], device="loom")
    parameter, state, norm = (
        torch.zeros(2, device="loom"),
        torch.zeros(2, device="loom"),
        torch.zeros(1, device="loom"),
    )
    optimizers.update_32bit(
        *("lars", gradient, parameter, state, None, norm, 0.5, 2.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 1.0, 1.0)
    )
    assert norm.item() == 25.0
    torch.testing.assert_close(parameter.cpu(), torch.tensor([-0.6, -0.8]))  # of norm 5, limited to 1


def test_state_may_be_memory_of_the_host() -> None:
    parameter, gradient = torch.ones(512, device="loom"), torch.ones(512, device="loom")
    codes = torch.zeros(2, 512, dtype=torch.uint8)
    absmax = torch.zeros(2, 2, device="loom")
    optimizers.update_8bit_blockwise(
        *("adam", gradient, parameter, codes[0], codes[1], 0.9, 0.99, 0.0, 0.0, 1e-8, 1, 0.1),
        *(SIGNED_MAP.to("loom"), UNSIGNED_MAP.to("loom"), absmax[0], absmax[1], 0.0, 1.0),
    )
    torch.testing.assert_close(parameter.cpu(), torch.full((512,), 0.9))
    assert codes.unique().tolist() == [255]
    state = torch.zeros(512)
    optimizers.update_32bit(
        "momentum",
        gradient,
        parameter,
        state,
        None,
        None,
        0.0,
        0.0,
        0.9,
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
        1,
        0.1,
        1.0,
    )
    assert state.tolist() == [1.0] * 512


def test_what_the_library_refuses() -> None:
    half, code = torch.ones(64, device="loom", dtype=torch.float16), SIGNED_MAP.to("loom")

    def step(name: str, gradient: Tensor) -> None:
        numbers = (0.9, 0.99, 0.0, 0.0, 1e-8, 0.0, 1, 0.1, 1.0)
        optimizers.update_32bit(name, gradient, gradient, half.float(), None, None, 0.0, 0.0, *numbers)

    with pytest.raises(
        ValueError, match=r"Unsupported optimizer name: sgd. Supported optimizers: \['adam', 'mom"
    ):
        step("sgd", half)
    with pytest.raises(
        ValueError, match=r"combination not supported: grad torch.bfloat16, optimizer torch.float32"
    ):
        step("momentum", half.bfloat16())
    for shape in ((64,), (2, 32), (8, 8)):
        numbers = (0.9, 0.99, 0.999, 5.0, 1e-8, 0.0, 1, 0.1, 1.0)
        state = torch.zeros(shape, device="loom")
        with pytest.raises(ValueError, match=r"two moments in state1: expected the shape \(2, 64\), got \("):
            optimizers.update_32bit("ademamix", half, half, state, state, None, 0.0, 0.0, *numbers)
    with pytest.raises(ValueError, match="invalid blocksize 96"):
        blocks.quantize_blockwise(half, code, 96)
    with pytest.raises(ValueError, match=r"only supports 16/32-bit floats, but got torch.float64"):
        blocks.quantize_blockwise(half.double(), code, 64)
    with pytest.raises(
        ValueError, match=r"Expected out.shape == torch.Size\(\[64\]\), got torch.Size\(\[2\]\)"
    ):
        blocks.dequantize_blockwise_out(half.byte(), code[:1], code, 64, torch.float32, code[:2])
    with pytest.raises(ValueError, match=r"A must be float16, got torch.float32"):
        int8.vectorwise_quant(half.float().view(8, 8))
    with pytest.raises(ValueError, match="Inner dimensions do not match"):
        int8.linear_matmul(half.to(torch.int8).view(8, 8), half.to(torch.int8).view(16, 4))


def test_paged_memory_is_filled_and_multiplied() -> None:
    import ctypes

    class Library:
        pass

    library = Library()
    paged.install(library)
    address = ctypes.c_void_p(library.cget_managed_ptr(ctypes.c_size_t(64)))  # type: ignore[attr-defined]
    library.cfill_fp32(address, None, ctypes.c_float(1.5), ctypes.c_int64(16))  # type: ignore[attr-defined]
    library.cprefetch(address, ctypes.c_size_t(64), ctypes.c_int32(0))  # type: ignore[attr-defined]
    library.c_mul_fp32(address, address, ctypes.c_float(0), ctypes.c_int64(16))  # type: ignore[attr-defined]
    values = (ctypes.c_float * 16).from_address(address.value or 0)
    assert list(values) == [2.25] * 16
    library.cfill_uint8(address, None, ctypes.c_uint8(7), ctypes.c_int64(64))  # type: ignore[attr-defined]
    assert bytes(values) == b"\x07" * 64


@pytest.mark.long
@pytest.mark.parametrize("name", ["loom", "cuda"])
def test_kernels_are_registered_for_the_device(fork_python: PythonRunner, name: str) -> None:
    program = PROGRAMS / "registered.py"
    run = fork_python(program, {"TORCH_LOOM_DEVICE_NAME": name}, given=name, is_autoloading=True)
    assert run.stdout.strip() == "[255] [1.0] True", run.stderr


def test_the_library_finds_the_entry_point() -> None:
    (entry,) = [
        entry
        for entry in importlib.metadata.entry_points(group="bitsandbytes.backends")
        if entry.value.startswith("torch_loom")
    ]
    assert entry.load().__name__ == "register"
    assert len(KERNELS) == 16
