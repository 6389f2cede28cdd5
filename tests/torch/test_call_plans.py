"""Plans of calls: settings that decide one make another, and an op may have more plans than are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "call_plans"


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_default_dtype(torch.float32)


def test_deterministic_mode_decides_a_plan() -> None:
    x = torch.ones(7, device="loom")
    for _ in range(3):
        torch.use_deterministic_algorithms(False)
        assert x.cumsum(0)[-1].item() == 7
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match="cumsum_cuda_kernel does not have a deterministic"):
            x.cumsum(0)


def test_an_unboxed_op_is_planned_with_deterministic_mode() -> None:
    target, index = torch.zeros(3, 4, device="loom"), torch.tensor([0, 2], device="loom")
    source = torch.ones(2, 4, device="loom")
    for is_strict in (False, True, False, True):
        torch.use_deterministic_algorithms(is_strict)
        assert torch.addmm(target, torch.zeros(3, 2, device="loom"), source).tolist() == [[0] * 4] * 3
        assert torch.index_select(target, 0, index).shape == (2, 4)


def test_the_default_dtype_decides_a_plan() -> None:
    x = torch.arange(1, 4, device="loom")
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        assert (x / 2).dtype == dtype
        assert torch.sigmoid(x).dtype == dtype


def test_the_world_decides_a_plan() -> None:
    x = torch.arange(12, dtype=torch.float32, device="loom").view(3, 4)
    for _ in range(3):
        assert torch.add(x, x)[2, 3].item() == 22
        with torch.loom.dry_run(devices=1):
            y = torch.empty(3, 4, device="loom")
            assert torch.add(y, y).shape == (3, 4)
        del y


def test_attention_is_planned_with_the_kernels_that_are_allowed() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, 8, 16, generator=generator)
    own = query.to("loom")
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    found: dict[SDPBackend, torch.Tensor] = {}
    for _ in range(3):
        for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(kernel):
                result = torch.nn.functional.scaled_dot_product_attention(own, own, own).cpu()
            torch.testing.assert_close(result, expected)
            assert torch.equal(found.setdefault(kernel, result), result)


def test_chip_and_policy_decide_a_plan(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "chip_and_policy_decide_a_plan.py", {"TORCH_LOOM_CHIP": "h200,loom1,atom"})


def test_operands_that_share_a_storage_have_a_plan_of_their_own() -> None:
    pool = torch.arange(12, dtype=torch.float32, device="loom")
    other = torch.full((4,), 10.0, device="loom")
    for start in (4, 0, 8):
        x = pool[start : start + 4].clone()
        y = x[:2]
        assert torch.add(x, other).tolist() == [10.0 + start + i for i in range(4)]
        assert torch.add(x[:2], y).tolist() == [2.0 * start, 2.0 * (start + 1)]
        assert x.add_(x).tolist() == [2.0 * (start + i) for i in range(4)]


def test_an_op_has_more_calls_than_plans() -> None:
    memory = torch.arange(9000, dtype=torch.float32, device="loom")
    for _ in range(2):
        results = [torch.neg(memory[:size]) for size in range(1, 5000)]
        assert all(result.shape == (size,) for size, result in enumerate(results, 1))
        assert [results[size][-1].item() for size in (0, 128, 4998)] == [0, -128, -4998]


def test_operands_of_other_metadata_take_tensors_of_the_engine_in_turns() -> None:
    memory = torch.arange(64, dtype=torch.float32)
    for _ in range(3):
        for sizes, strides, offset in (
            ((4, 4), (4, 1), 0),
            ((4, 4), (1, 4), 0),
            ((4, 4), (4, 1), 3),
            ((16,), (2,), 1),
        ):
            x = memory.as_strided(sizes, strides, offset)
            own = memory.to("loom").as_strided(sizes, strides, offset)
            assert torch.equal((own + own.flip(0)).cpu(), x + x.flip(0))
            assert torch.equal(own.to(torch.int64).add(1).cpu(), x.to(torch.int64).add(1))


def test_a_result_that_a_kernel_resizes_leaves_no_metadata_behind() -> None:
    x, y = torch.ones(3, 5, device="loom"), torch.ones(2, device="loom")
    for _ in range(3):
        out = torch.empty(0, device="loom")
        assert torch.add(x, x, out=out).shape == (3, 5)
        assert torch.add(y, y).tolist() == [2.0, 2.0]
        assert torch.add(out, x).sum().item() == 45
        assert torch.add(torch.empty(0, device="loom"), 1).shape == (0,)
