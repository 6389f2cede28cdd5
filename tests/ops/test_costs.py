"""FLOPs of calls, against PyTorch's own counter and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from torch_loom import ops


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, (list, tuple)) else []


def _described(tensor: Tensor) -> ops.Tensor:
    return ops.Tensor(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class Calls(TorchDispatchMode):
    """Keeps each call of an op as the table sees it, and what PyTorch's counter says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[ops.Call, int | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        arguments = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
        arguments |= dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        inputs = [leaf for value in arguments.values() for leaf in _leaves(value)]
        attributes = {name: value for name, value in arguments.items() if not _leaves(value)}
        name = func.name().replace(".default", "")
        call = ops.Call(
            name, tuple(map(_described, inputs)), tuple(map(_described, _leaves(result))), attributes
        )
        count = flop_registry.get(func._overloadpacket)
        self.seen.append((call, count(*args, **kwargs, out_val=result) if count else None))
        return result


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, requires_grad=True)


PRODUCTS: list[tuple[str, Callable[[], Tensor]]] = [
    ("mm", lambda: rand(3, 5) @ rand(5, 7)),
    ("bmm", lambda: torch.bmm(rand(2, 3, 5), rand(2, 5, 7))),
    ("conv1d", lambda: torch.nn.functional.conv1d(rand(2, 4, 9), rand(6, 4, 3), padding=1)),
    ("conv2d", lambda: torch.nn.functional.conv2d(rand(2, 4, 9, 8), rand(6, 4, 3, 2), stride=2)),
    ("conv3d", lambda: torch.nn.functional.conv3d(rand(1, 2, 5, 5, 5), rand(3, 2, 2, 2, 2), dilation=2)),
    ("transposed", lambda: torch.nn.functional.conv_transpose2d(rand(2, 4, 5, 5), rand(4, 3, 3, 3))),
]


@pytest.mark.parametrize(("name", "work"), PRODUCTS, ids=[name for name, _ in PRODUCTS])
def test_products_and_their_gradients_count_as_pytorch_counts(name: str, work: Callable[[], Tensor]) -> None:
    with Calls() as calls:
        work().sum().backward()
    counted = [(call, flops) for call, flops in calls.seen if flops is not None]
    assert counted
    for call, flops in counted:
        assert ops.family_of(call.op).flops(call) == flops, call


def _flops(op: str, *shapes: tuple[int, ...], out: tuple[int, ...] = (), **attributes: Any) -> int:
    call = ops.Call(op, tuple(map(ops.Tensor, shapes)), (ops.Tensor(out),), attributes)
    return ops.family_of(op).flops(call)


def test_a_summand_is_scaled_and_added() -> None:
    assert _flops("aten::addmm", (7,), (3, 5), (5, 7), out=(3, 7)) == 2 * 3 * 5 * 7 + 2 * 21
    assert _flops("aten::baddbmm", (2, 3, 7), (2, 3, 5), (2, 5, 7), out=(2, 3, 7)) == 2 * (2 * 105 + 42)
    assert _flops("aten::addmv", (3,), (3, 5), (5,), out=(3,)) == 2 * 15 + 2 * 3
    assert _flops("aten::dot", (5,), (5,), out=()) == 10
    assert _flops("aten::linear", (2, 3, 5), (7, 5), (7,), out=(2, 3, 7)) == 2 * 6 * 5 * 7 + 42


def test_groups_divide_the_work_of_a_convolution_and_of_its_gradients() -> None:
    # PyTorch's counter leaves the groups out of the weight's gradient.
    batch, weight, result = (2, 4, 9), (6, 2, 3), (2, 6, 9)
    forward = _flops("aten::convolution", batch, weight, out=result, groups=2)
    assert forward == 2 * 108 * 2 * 3
    both = {"groups": 2, "output_mask": [True, True, False]}
    assert _flops("aten::convolution_backward", result, batch, weight, out=batch, **both) == 2 * forward
    weights = {"groups": 2, "output_mask": [False, True, True]}
    assert _flops("aten::convolution_backward", result, batch, weight, out=weight, **weights) == forward + 108


def test_attention_without_and_with_a_causal_mask() -> None:
    heads, length, width = 6, 8, 4
    shape = (2, 3, length, width)
    op = "aten::_scaled_dot_product_fused_attention_overrideable"
    whole = _flops(op, shape, shape, shape, out=shape)
    assert whole == heads * length * length * (4 * width + 5)
    causal = _flops(op, shape, shape, shape, out=shape, is_causal=True)
    assert causal == heads * (length * (length + 1) // 2) * (4 * width + 5)
    backward = _flops(f"{op}_backward", shape, shape, shape, shape, out=shape)
    assert 2 * whole < backward < 3 * whole


def test_elementwise_reductions_and_scans() -> None:
    assert _flops("aten::add.Tensor", (4, 1), (1, 8), out=(4, 8)) == 32
    assert _flops("aten::_foreach_mul.Scalar", (4,), out=(4,)) == 4
    assert _flops("aten::sum.dim_IntList", (4, 8), out=(4,)) == 32
    assert _flops("aten::cumsum", (4, 8), out=(4, 8)) == 32
    assert _flops("aten::avg_pool2d", (1, 2, 8, 8), out=(1, 2, 4, 4), kernel_size=[2, 2]) == 32 * 4
    assert _flops("aten::sort", (16, 4), out=(16, 4), dim=0) == 64 * 4
    assert _flops("aten::_fft_c2c", (3, 16), out=(3, 16), dim=[1]) == 5 * 48 * 4
    assert _flops("aten::linalg_cholesky_ex", (2, 9, 9), out=(2, 9, 9)) == 2 * 729 * 2 // 3
    assert _flops("aten::copy_", (9,), (9,), out=(9,)) == 0
