"""Programs under the sums of GPUs' matrix instructions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.conftest import PythonRunner
from tests.numerics import silicon_reference as reference
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import tensor_core
from torch_loom.numerics._ops import ops
from torch_loom.numerics.tensor_cores import chip_rule

PROGRAMS = Path(__file__).parent / "programs"
CHIPS = ("v100", "t4", "a100", "l4", "h100", "b200")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bits_of(values: Tensor) -> np.ndarray:
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[values.element_size()]
    array = values.contiguous().view(width).numpy()
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[values.element_size()]).astype(np.int64)


def chained(chip: str, a: Tensor, b: Tensor) -> Tensor:
    """The reference's float32 sums of [M, K] and [K, N]."""
    rule = chip_rule(chip, a.dtype, b.dtype)
    rows, columns = a.shape[0], b.shape[1]
    left, right = np.repeat(bits_of(a), columns, 0), np.tile(bits_of(b).T, (rows, 1))
    sums = np.zeros(rows * columns, np.int64)
    padding = -a.shape[1] % rule.depth
    left, right = (np.pad(each, ((0, 0), (0, padding))) for each in (left, right))
    sums = reference.instruction(
        (rule.a, rule.b), "f32", rule.fraction_bits, rule.kept_bits, rule.step, left, right, sums
    )
    return torch.from_numpy(sums.astype(np.uint32).view(np.float32)).view(rows, columns)


@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("chip", CHIPS)
def test_products_are_the_instructions(chip: str, kernels: str) -> None:
    if not ops._use_kernels(kernels):
        pytest.skip(f"the processor lacks {kernels}")
    try:
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2):
            try:
                rule = chip_rule(chip, dtype, dtype)
            except FormatError:
                continue
            for spread in (1.0, 30.0):
                a, b = random(7, 75, seed=1, dtype=torch.float32), random(75, 35, seed=2, dtype=torch.float32)
                scale = torch.exp2(random(7, 75, seed=3, dtype=torch.float32) * spread / 10)
                a, b = (a * scale).to(dtype), b.to(dtype)
                got = ops.tensor_core_matmul(a.float(), b.float(), *rule.arguments[:6], rule.depth)
                assert torch.equal(got, chained(chip, a, b)), (dtype, spread)
    finally:
        ops._use_kernels("")


def test_small_large_and_infinite_operands_are_exact_too() -> None:
    a = random(4, 32, seed=1, dtype=torch.bfloat16) * torch.tensor([[1e-30], [1e30], [1.0], [1.0]]).bfloat16()
    b = random(32, 5, seed=2, dtype=torch.bfloat16)
    a[2, 3] = float("inf")
    a[3, :] = 0
    rule = chip_rule("h100", torch.bfloat16, torch.bfloat16)
    got = ops.tensor_core_matmul(a.float(), b.float(), *rule.arguments[:6], rule.depth)
    assert torch.equal(got[[0, 1, 3]], chained("h100", a[[0, 1, 3]], b))
    assert got[2].isinf().all()


def test_a_context_takes_matmuls_and_leaves_the_rest() -> None:
    a, b, c = random(5, 64, seed=1), random(64, 9, seed=2), random(9, seed=3)
    sums = chained("h100", a, b)
    with tensor_core(chip="h100"):
        assert torch.equal(a @ b, sums.half())
        assert torch.equal(functional.linear(a, b.T.contiguous(), c), (sums + c.float()).half())
        assert torch.equal(torch.bmm(a[None], b[None])[0], sums.half())
        assert torch.equal(torch.addmm(c, a, b, beta=2.0, alpha=0.5), (sums * 0.5 + c.float() * 2.0).half())
        assert torch.equal(a.float() @ b.float(), torch.mm(a.float(), b.float()))
    plain = a @ b
    assert not torch.equal(plain.float(), sums)


def in_tf32(numbers: torch.Tensor) -> torch.Tensor:
    """As an H100's cuBLAS reads float32: 11 significant bits, halves to even."""
    mantissa, exponent = torch.frexp(numbers.double())
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent).float()


def test_tf32_is_taken_where_asked_for() -> None:
    a, b = random(5, 64, seed=1, dtype=torch.float32), random(64, 9, seed=2, dtype=torch.float32)
    with tensor_core(chip="a100", tf32=True):
        assert torch.equal(a @ b, chained("a100", in_tf32(a), in_tf32(b)))


def test_gradients_are_products_too() -> None:
    a, b = random(5, 64, seed=1).requires_grad_(), random(64, 9, seed=2).requires_grad_()
    grad = random(5, 9, seed=3)
    with tensor_core(chip="h100"):
        (a @ b).backward(grad)
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, chained("h100", grad, b.detach().T.contiguous()).half())
    assert torch.equal(b.grad, chained("h100", a.detach().T.contiguous(), grad).half())


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), ((2, 1), (1, 2), 2, 1)]
)
def test_convolutions_are_products_of_windows(stride: int, padding: int, dilation: int, groups: int) -> None:
    layer = nn.Conv2d(4, 6, 3, stride, padding, dilation, groups).half()
    exact = nn.Conv2d(4, 6, 3, stride, padding, dilation, groups)
    exact.load_state_dict({name: value.float() for name, value in layer.state_dict().items()})
    x = random(2, 4, 11, 10, seed=1).requires_grad_()
    wide = x.detach().float().requires_grad_()
    with tensor_core(chip="h100"):
        out = layer(x)
        out.float().square().sum().backward()
    wanted = exact(wide)
    wanted.square().sum().backward()
    torch.testing.assert_close(out.float(), wanted, rtol=2e-3, atol=2e-3)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.float(), wide.grad, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(layer.weight.grad.float(), exact.weight.grad, rtol=1e-2, atol=5e-2)
    torch.testing.assert_close(layer.bias.grad.float(), exact.bias.grad, rtol=1e-2, atol=5e-2)
    if groups == 1 and stride == 1:
        windows = (
            functional.unfold(x.detach().float(), 3).view(2, 4, 9, -1).permute(0, 3, 2, 1).reshape(-1, 36)
        )
        filters = layer.weight.detach().permute(2, 3, 1, 0).reshape(36, 6)
        sums = chained("h100", windows.half(), filters) + layer.bias.detach().float()
        assert torch.equal(out, sums.view(2, 9, 8, 6).permute(0, 3, 1, 2).half())


def test_hopper_moves_float8_sums_to_float32() -> None:
    a, b = (
        random(3, 512, seed=1, dtype=torch.float8_e4m3fn),
        random(512, 5, seed=2, dtype=torch.float8_e4m3fn),
    )
    parts = [
        chained("h100", a[:, k : k + 128].contiguous(), b[k : k + 128].contiguous())
        for k in range(0, 512, 128)
    ]
    wanted = torch.zeros(3, 5)
    for part in parts:
        wanted = wanted + part
    one = torch.tensor(1.0)
    columns = b.T.contiguous().T
    with tensor_core(chip="h100"):
        slow = torch._scaled_mm(a, columns, one, one, out_dtype=torch.float32)
        fast = torch._scaled_mm(a, columns, one, one, out_dtype=torch.float32, use_fast_accum=True)
    assert torch.equal(slow, wanted)
    assert torch.equal(fast, chained("h100", a, b))


@pytest.fixture
def allowed_tf32() -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("allowed_tf32")
def test_tf32_is_taken_where_pytorch_allows_it() -> None:
    a, b = random(3, 8, seed=1).float(), random(8, 5, seed=2).float() * 1.0001
    with tensor_core(chip="a100"):
        assert torch.equal(a @ b, chained("a100", in_tf32(a), in_tf32(b)))
    with tensor_core(chip="v100"):
        assert torch.equal(a @ b, torch.mm(a, b))


def test_split_k_adds_parts_in_float32() -> None:
    a, b = random(3, 128, seed=1), random(128, 5, seed=2)
    wanted = chained("a100", a[:, :64].contiguous(), b[:64]) + chained("a100", a[:, 64:].contiguous(), b[64:])
    with tensor_core(chip="a100", split_k=2):
        assert torch.equal(a @ b, wanted.half())


def test_a_module_is_wrapped() -> None:
    model = nn.Linear(64, 9).half()
    x = random(5, 64, seed=1)
    with tensor_core(chip="b200"):
        wanted = model(x)
    assert torch.equal(tensor_core(model, chip="b200")(x), wanted)


def test_bad_input() -> None:
    with pytest.raises(
        FormatError, match="chip is 'rtx5090', whose matrix instructions have no rule; allowed: v100"
    ):
        tensor_core(chip="rtx5090")
    with pytest.raises(FormatError, match="split_k is 0; allowed"):
        tensor_core(chip="h100", split_k=0)
    with pytest.raises(FormatError, match="promotion is 100 on h100; allowed: None, 0"):
        tensor_core(chip="h100", promotion=100)
    with (
        tensor_core(chip="h100"),
        pytest.raises(
            FormatError, match=r"mm: operands of torch\.float16 and torch\.bfloat16 on h100; allowed"
        ),
    ):
        torch.ones(4, 4).half() @ torch.ones(4, 4).bfloat16()
    with pytest.raises(OperandError, match="model is a int"):
        tensor_core(3)  # type: ignore[call-overload]
    with pytest.raises(
        FormatError, match=r"torch.float8_e4m3fn on a100; allowed: two operands of torch.float16"
    ):
        chip_rule("a100", torch.float8_e4m3fn, torch.float8_e4m3fn)
    with (
        tensor_core(chip="v100"),
        pytest.raises(
            FormatError, match=r"mm: no rule for torch\.bfloat16 with torch\.bfloat16 on v100; allowed"
        ),
    ):
        torch.ones(4, 4).bfloat16() @ torch.ones(4, 4).bfloat16()


@pytest.mark.long
@pytest.mark.parametrize("chip", ["loom1", "rtx5090"])
def test_a_setting_on_a_chip_without_a_rule_refuses_products(chip: str, warm_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_MATMUL": "tensor_core", "TORCH_LOOM_CHIP": chip}
    result = warm_python(PROGRAMS / "refused_by_setting.py", env)
    assert "products are refused" in result.stdout


@pytest.mark.long
def test_a_setting_makes_products_the_chips(warm_python: PythonRunner) -> None:
    env = {"TORCH_LOOM_MATMUL": "tensor_core", "TORCH_LOOM_CHIP": "h100"}
    result = warm_python(PROGRAMS / "products_by_setting.py", env)
    assert "products are the chip's" in result.stdout
