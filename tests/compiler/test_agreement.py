"""Fake results are as the real ones: of every op that has a kernel or a fake kernel of torch-loom's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tests.compiler import agreement
from torch_loom.numerics import DataFormat, MathFidelity

PROGRAMS = Path(__file__).parent / "programs" / "agreement"

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import PythonRunner

BLOCK, WIDE = DataFormat.Bfp8_b.value, DataFormat.Float16_b.value
FIDELITY = MathFidelity.HiFi2.value


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["loom", "cuda", "rbln"])
def test_fake_results_are_as_real_ones(warm_python: PythonRunner, name: str) -> None:
    chips = {"TORCH_LOOM_CHIP": "h200,a100", "TORCH_LOOM_DEVICES": "2"} if name == "cuda" else {}
    env = {"TORCH_LOOM_DEVICE_NAME": name, **chips}
    warm_python(PROGRAMS / "fake_results_are_as_real_ones.py", env, given=name)


@pytest.mark.long
def test_fake_results_of_attention_are_as_real_ones() -> None:
    with agreement.Agreement() as seen:
        for attention in agreement.attentions("loom"):
            agreement.differentiate(attention())
    assert set(seen.different) <= set(agreement.DIFFERENT)


def test_what_differs_is_found() -> None:
    fused = torch.ops.aten._native_multi_head_attention
    x = torch.ones(2, 4, 8, device="loom")
    weights = [torch.ones(*sizes, device="loom") for sizes in ((24, 8), (24,), (8, 8), (8,))]
    with agreement.Agreement() as seen:
        fused(x, x, x, 8, 2, *weights, need_weights=False)
    assert set(seen.different) == {"aten::_native_multi_head_attention 1"}
    assert "real None" in seen.different["aten::_native_multi_head_attention 1"]


def convolved(op: Any, *rest: Any) -> Callable[..., Any]:
    return lambda x, y: op(x, y[:, :, :3, :3], None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, *rest)


OPS: dict[str, Callable[..., Any]] = {
    "convolution": convolved(torch.ops.aten.convolution),
    "quantize": lambda x, y: torch.ops.loom_numerics.quantize(x, BLOCK),
    "operand": lambda x, y: torch.ops.loom_numerics.operand(x, 1, FIDELITY),
    "matmul": lambda x, y: torch.ops.loom_numerics.matmul(x, y.mT, FIDELITY, WIDE),
    "linear": lambda x, y: torch.ops.loom_numerics.linear(x, y[0, 0], None, FIDELITY, WIDE),
    "products of convolution": convolved(torch.ops.loom_numerics.convolution, FIDELITY, WIDE),
    "pack": lambda x, y: torch.ops.loom_numerics.unpack(
        torch.ops.loom_numerics.pack(x, BLOCK), BLOCK, list(x.shape)
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_fake_kernels_take_symbolic_sizes(name: str) -> None:
    env = ShapeEnv()
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 4)
    given = torch.rand(2, 3, 7, 11, device="loom")
    with FakeTensorMode(shape_env=env) as mode, enable_python_dispatcher():  # as torch.compile traces
        first = mode.from_tensor(given, symbolic_context=sizes)
        result = OPS[name](first, torch.empty_like(first))
    assert isinstance(result.shape[0], torch.SymInt)
    assert result.shape[0].node.expr == first.shape[0].node.expr
    numbers = [value for value in env.replacements.values() if value.is_number]
    assert numbers == []  # no size was taken for a constant
    assert result.device.type == "loom"
