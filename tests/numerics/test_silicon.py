"""Instructions of Tensix chips and of GPUs' matrix units against a slow reference of the rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.numerics import silicon_reference as reference
from tests.numerics.silicon_reference import BF16, BLACKHOLE, FP16, FP32, WORMHOLE
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores import Rule, instruction_rule

Array = np.ndarray[Any, np.dtype[np.int64]]

# Format, whether its exponents have 5 bits, magnitude or mantissa bits below the leading one, destinations.
FORMATS = {
    "Float16_b": (5, False, 7, (BF16, FP32)),
    "Tf32": (4, False, 10, (BF16, FP32)),
    "Bfp8_b": (6, False, 6, (BF16, FP32)),
    "Bfp4_b": (7, False, 2, (BF16, FP32)),
    "Bfp2_b": (15, False, 0, (BF16, FP32)),
    "Float16": (1, True, 10, (FP16, FP32)),
    "Lf8": (10, True, 2, (FP16, FP32)),
}
CASES = [
    (name, dst, chip) for name, what in FORMATS.items() for dst in what[3] for chip in (WORMHOLE, BLACKHOLE)
]
FEW, MANY = 2_048, 62_500  # results of 16 products


def bits(array: Array) -> Tensor:
    return torch.from_numpy(array.astype(np.uint32).view(np.int32))


def unsigned(tensor: Tensor) -> Array:
    return tensor.numpy().view(np.uint32).astype(np.int64)


def words(random: np.random.Generator, shape: tuple[int, ...], name: str, kind: str) -> Array:
    """Random source words of like sizes or of all sizes, with some zeros or most of them."""
    _, short, kept, _ = FORMATS[name]
    middle = 15 if short else 127
    spread = {"alike": 4, "sparse": 6, "apart": 12, "wide": 14 if short else 60}.get(kind, middle)
    exponent = np.clip(random.integers(middle - spread, middle + spread + 1, shape), 0, 31 if short else 255)
    exponent = np.where(random.random(shape) < (0.8 if kind == "sparse" else 0.05), 0, exponent)
    mantissa = random.integers(0, 1 << kept, shape) << (10 - kept)
    return random.integers(0, 2, shape) << 18 | exponent << 10 | mantissa


def mask(name: str) -> int:
    return 0x3FF if FORMATS[name][1] or name == "Tf32" else 0x3F8


def destination(random: np.random.Generator, count: int, dst: int) -> Array:
    if dst == FP32:
        exponent = np.where(random.random(count) < 0.2, 0, random.integers(100, 150, count))
        return random.integers(0, 2, count) << 31 | exponent << 23 | random.integers(0, 1 << 23, count)
    if dst == BF16:
        exponent = np.where(random.random(count) < 0.2, 0, random.integers(100, 150, count))
        return random.integers(0, 2, count) << 15 | exponent << 7 | random.integers(0, 1 << 7, count)
    return (
        random.integers(0, 2, count) << 15
        | random.integers(0, 32, count) << 10
        | random.integers(0, 1024, count)
    )


def check_steps(name: str, dst: int, chip: int, count: int, seed: int) -> None:
    fmt, short, _, _ = FORMATS[name]
    random = np.random.default_rng(seed)
    columns = 16
    for kind in ("alike", "wide", "extreme"):
        rows = max(1, count // columns // 3)
        b, a = words(random, (rows, 16), name, kind), words(random, (16, columns), name, kind)
        old = destination(random, rows * columns, dst).reshape(rows, columns)
        left = np.repeat(b, columns, 0)
        right = np.tile(a.T, (rows, 1))
        for phase in range(4):
            got = ops.tensix_matmul(bits(b), bits(a), bits(old), fmt, fmt, dst, chip, phase, phase + 1)
            wanted = reference.mvmul(
                chip, dst, short, (mask(name), mask(name)), phase, left, right, old.reshape(-1)
            )
            np.testing.assert_array_equal(unsigned(got).reshape(-1), wanted, err_msg=f"{kind}, pass {phase}")


@pytest.mark.parametrize(("name", "dst", "chip"), CASES)
def test_steps(name: str, dst: int, chip: int) -> None:
    check_steps(name, dst, chip, FEW, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dst", "chip"), CASES)
def test_a_million_products(name: str, dst: int, chip: int) -> None:
    check_steps(name, dst, chip, 3 * MANY, 2)


CHAINS = [("Float16_b", BF16), ("Float16_b", FP32), ("Tf32", FP32), ("Float16", FP16), ("Lf8", FP32)]


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("passes", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "dst"), CHAINS)
def test_chains(name: str, dst: int, passes: int, kernels: str) -> None:
    if not ops._use_kernels(kernels):
        pytest.skip(f"the processor lacks {kernels}")
    random = np.random.default_rng(passes)
    rows, columns = 7, 67  # neither fills tiles of rows or panels
    fmt, short, _, _ = FORMATS[name]
    try:
        for kind in ("alike", "sparse", "apart", "wide", "extreme", "cancelling"):
            b, a = words(random, (rows, 320), name, kind), words(random, (320, columns), name, kind)
            if kind == "cancelling":  # each 32 of K after the first takes back what the one before it added
                b, a = np.tile(b[:, :32], (1, 10)), np.tile(a[:32], (10, 1))
                b[:, np.arange(320) // 32 % 2 == 1] ^= 1 << 18
            start = torch.zeros(rows, columns, dtype=torch.int32)
            got = ops.tensix_matmul(bits(b), bits(a), start, fmt, fmt, dst, WORMHOLE, 0, passes)
            wanted = reference.chain(
                WORMHOLE,
                dst,
                short,
                (mask(name), mask(name)),
                passes,
                np.repeat(b, columns, 0),
                np.tile(a.T, (rows, 1)),
            )
            np.testing.assert_array_equal(unsigned(got).reshape(-1), wanted, err_msg=kind)
    finally:
        ops._use_kernels("")


def test_wormhole_has_a_fault_that_blackhole_lacks() -> None:
    random = np.random.default_rng(5)
    differ = 0
    for _ in range(40):
        b = words(random, (64, 16), "Float16_b", "alike")
        a = words(random, (16, 16), "Float16_b", "alike")
        old = unsigned(
            ops.tensix_matmul(
                bits(b), bits(a ^ 1 << 18), torch.zeros(64, 16, dtype=torch.int32), 5, 5, FP32, 0, 0, 1
            )
        )
        old = np.where(old > 0, old + 1, old)  # one last bit away from cancelling
        each = [
            unsigned(ops.tensix_matmul(bits(b), bits(a), bits(old), 5, 5, FP32, chip, 0, 1))
            for chip in (WORMHOLE, BLACKHOLE)
        ]
        differ += int((each[0] != each[1]).sum())
    assert differ > 0


@pytest.mark.parametrize("mode", [0x56, 0x57, 0x5F, 0x66, 0x67, 0x106, 0x107, 0x10F, 0x166, 0x167])
def test_packer(mode: int) -> None:
    random = np.random.default_rng(mode)
    values = destination(random, 16 * 1024, FP32 if mode & 256 else BF16).reshape(-1, 16)
    got = unsigned(ops.tensix_pack(bits(values), mode, 0, 0, False, False, WORMHOLE))
    exponents, elements = reference.packed(mode, values)
    np.testing.assert_array_equal(got[:, 0], exponents)
    np.testing.assert_array_equal(got[:, 1:], elements)


INSTRUCTIONS = [
    ("Ampere", "mma", "m16n8k16.f32.f16.f16.f32"),
    ("Ampere", "mma", "m16n8k16.f16.f16.f16.f16"),
    ("Ampere", "mma", "m16n8k16.f32.bf16.bf16.f32"),
    ("Ampere", "mma", "m16n8k8.f32.tf32.tf32.f32"),
    ("Ada Lovelace", "mma", "m16n8k32.f32.e4m3.e4m3.f32"),
    ("Ada Lovelace", "mma", "m16n8k32.f16.e4m3.e4m3.f16"),
    ("Hopper", "wgmma", "m64n8k16.f32.f16.f16"),
    ("Hopper", "wgmma", "m64n8k16.f32.bf16.bf16"),
    ("Hopper", "wgmma", "m64n8k8.f32.tf32.tf32"),
    ("Hopper", "wgmma", "m64n8k32.f32.e5m2.e4m3"),
    ("Hopper", "wgmma", "m64n8k32.f16.e4m3.e4m3"),
    ("Blackwell", "tcgen05mma", "m64n8k32.f32.e4m3.e4m3"),
]


def operand_bits(random: np.random.Generator, name: str, shape: tuple[int, ...], spread: int) -> Array:
    width, fraction, bias = reference.LAYOUTS[name]
    low, high = max(bias - spread, 0), min(bias + spread, (1 << width) - 2)
    exponent = np.where(random.random(shape) < 0.05, 0, random.integers(low, high + 1, shape))
    value = random.integers(0, 2, shape) << (width + fraction) | exponent << fraction
    value = value | random.integers(0, 1 << fraction, shape)
    return value << 13 | random.integers(0, 1 << 13, shape) if name == "tf32" else value


def check_instruction(which: tuple[str, str, str], rows: int, seed: int) -> None:
    rule: Rule = instruction_rule(*which)
    random = np.random.default_rng(seed)
    columns = 8
    for spread in (2, 40):
        a = operand_bits(random, rule.a, (rows, 2 * rule.depth), spread)
        b = operand_bits(random, rule.b, (2 * rule.depth, columns), spread)
        c = operand_bits(random, rule.sums, (rows, columns), spread)
        got = ops.tensor_core_dot(bits(a), bits(b), bits(c), *rule.arguments)
        wanted = reference.instruction(
            (rule.a, rule.b), rule.sums, rule.fraction_bits, rule.kept_bits, rule.step,
            np.repeat(a, columns, 0), np.tile(b.T, (rows, 1)), c.reshape(-1),
        )  # fmt: skip
        np.testing.assert_array_equal(unsigned(got).reshape(-1), wanted, err_msg=f"{which}, spread {spread}")


@pytest.mark.parametrize("which", INSTRUCTIONS, ids="/".join)
def test_matrix_instructions(which: tuple[str, str, str]) -> None:
    check_instruction(which, 64, 3)


@pytest.mark.slow
@pytest.mark.parametrize("which", INSTRUCTIONS, ids="/".join)
def test_a_million_products_of_matrix_instructions(which: tuple[str, str, str]) -> None:
    check_instruction(which, 1_000_000 // (2 * instruction_rule(*which).depth * 8), 4)
