"""PyTorch's own check of every op: schema, autograd registration, fake tensors, AOTAutograd; the op table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.numerics.inputs import random
from torch_loom import _C
from torch_loom import ops as op_table
from torch_loom.numerics import DataFormat, MathFidelity

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
ops = torch.ops.loom_numerics
B8 = DataFormat.Bfp8_b
HIFI2, BF16 = MathFidelity.HiFi2.value, DataFormat.Float16_b.value


CONV = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
CALLS: dict[str, Callable[[bool], tuple[Any, tuple[Any, ...]]]] = {
    "quantize": lambda grad: (ops.quantize.default, (random(3, 20).requires_grad_(grad), B8.value)),
    "quantize_": lambda grad: (ops.quantize_.default, (random(3, 20), B8.value)),
    "quantize.out": lambda grad: (ops.quantize.out, (random(3, 20), B8.value, 255)),
    "quantize_counted": lambda grad: (
        ops.quantize_counted.default,
        (random(3, 20).requires_grad_(grad), B8.value),
    ),
    "renew_": lambda grad: (
        ops.renew_.default,
        (torch.zeros(3, 20), torch.zeros(1, dtype=torch.int64), random(3, 20), B8.value),
    ),
    "pack": lambda grad: (ops.pack.default, (random(3, 40), B8.value)),
    "unpack": lambda grad: (ops.unpack.default, (ops.pack(random(3, 40), B8.value), B8.value, [3, 40])),
    "operand": lambda grad: (ops.operand.default, (random(3, 20).requires_grad_(grad), 1, HIFI2)),
    "matmul": lambda grad: (
        ops.matmul.default,
        (random(2, 3, 20).requires_grad_(grad), random(20, 5).requires_grad_(grad), HIFI2, BF16),
    ),
    "silicon matmul": lambda grad: (
        ops.matmul.default,
        (
            random(3, 20).requires_grad_(grad),
            random(20).requires_grad_(grad),
            HIFI2,
            BF16,
            1,
            B8.value,
            B8.value,
        ),
    ),
    "elementwise": lambda grad: (
        ops.elementwise.default,
        (random(3, 20).requires_grad_(grad), random(20).requires_grad_(grad), 0, HIFI2, BF16, 1),
    ),
    "function": lambda grad: (ops.function.default, (random(3, 20).requires_grad_(grad), 5, BF16, 1)),
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
    "tensor_core_matmul": lambda grad: (
        ops.tensor_core_matmul.default,
        (random(3, 20), random(20, 5), 0, 0, False, 25, 23, 16, 16),
    ),
}
# Single instructions on bits, which are neither traced nor counted: tests/numerics/test_silicon.py.
INSTRUCTIONS = ("loom_numerics::tensix_", "loom_numerics::tensor_core_dot")


@pytest.mark.sampled(4)
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
        if name.startswith("loom_numerics::") and not name.startswith(("loom_numerics::_", *INSTRUCTIONS))
    }
    # matmul.out is tested with quantize.out's way of writing, below; block_scaled in test_block_formats.py.
    elsewhere = {"loom_numerics::matmul.out", "loom_numerics::block_scaled"}
    assert {f"{name}" for name in public} - elsewhere == checked


def test_every_op_is_in_the_op_table() -> None:
    for op in (call(False)[0] for call in (*CALLS.values(), lambda grad: (ops.matmul.out,))):
        facts = _C.op_facts(op._schema.name, op._schema.overload_name)
        assert facts["shape_class"] == op_table.family_of(op.name()).shape_class, op
        assert op_table.has_entry(op.name()), op


def test_work_is_spread_over_threads(run_python: PythonRunner) -> None:
    run_python(PROGRAMS / "on_all_threads.py")
