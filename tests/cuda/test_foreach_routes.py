"""Ops on lists of tensors under CUDA's name: one kernel where CUDA has one, else a kernel for each tensor."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}

PROGRAM = """
import torch
from torch.profiler import ProfilerActivity, profile

def made(*shape, dtype=torch.float32):
    return [torch.ones(shape, dtype=dtype, device="cuda") for _ in range(3)]

def kernels(call):
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    rows = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    return len(rows), sum("multi_tensor_apply_kernel" in row.name for row in rows)

x, half, double = made(4, 4), made(4, 4), made(4, 4, dtype=torch.float64)
half[1] = half[1].half()
whole = made(4, 4, dtype=torch.int32)
turned = [tensor.t() for tensor in made(4, 4)]
rows = [tensor[:, ::2] for tensor in made(4, 4)]
small = [tensor[:1] for tensor in x]
imaginary = made(4, dtype=torch.complex64)
"""

FAST = {
    "lists": "torch._foreach_add(x, x)",
    "in place": "torch._foreach_add_(x, x, alpha=2)",
    "number": "torch._foreach_mul_(x, 2)",
    "numbers": "torch._foreach_mul(x, [1, 2, 3])",
    "whole numbers": "torch._foreach_mul(whole, 2)",
    "roots": "torch._foreach_sqrt(x)",
    "norms": "torch._foreach_norm(x, 2)",
    "between": "torch._foreach_lerp_(x, x, 0.5)",
    "three lists": "torch._foreach_addcdiv_(x, x, x, value=2)",
    "copies to another dtype": "torch._foreach_copy_(double, x)",
    "on its side": "torch._foreach_add(turned, turned)",
    "complex": "torch._foreach_exp(imaginary)",
    "powers of a number": "torch._foreach_pow(2, whole)",
}
SLOW = {
    "dtypes": "torch._foreach_add(half, 1)",
    "dtypes of two lists": "torch._foreach_add(x, double)",
    "strides of two lists": "torch._foreach_add(x, turned)",
    "sizes of two lists": "torch._foreach_add(x, small)",
    "holes": "torch._foreach_add(rows, rows)",
    "number of another dtype": "torch._foreach_add(whole, 0.5)",
    "quotients of whole numbers": "torch._foreach_div(whole, 2)",
    "roots of whole numbers": "torch._foreach_sqrt(whole)",
    "larger of whole numbers": "torch._foreach_maximum(whole, 2)",
    "norms of another order": "torch._foreach_norm(x, 3)",
    "size of complex numbers": "torch._foreach_abs(imaginary)",
}


@pytest.mark.slow
def test_lists_take_the_route_that_they_take_on_cuda(warm_python: PythonRunner) -> None:
    fast = "".join(f"found[{name!r}] = kernels(lambda: {call}), (1, 1)\n" for name, call in FAST.items())
    slow = "".join(f"found[{name!r}] = kernels(lambda: {call}), (3, 0)\n" for name, call in SLOW.items())
    warm_python(
        PROGRAM
        + "found = {}\n"
        + fast
        + slow
        + "wrong = {name: pair for name, pair in found.items() if pair[0] != pair[1]}\n"
        + "assert not wrong, wrong\n",
        NAME,
    )


@pytest.mark.slow
def test_other_chips_take_every_list_at_once(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAM + "assert kernels(lambda: torch._foreach_add(x, turned)) == (1, 1)\n",
        NAME | {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_numbers_in_a_tensor_are_the_hosts(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        import torch

        numbers = torch.tensor([0.5, 2.0])
        x, y = ([torch.full((3,), value, device="cuda") for _ in range(2)] for value in (1.0, 4.0))
        for name, wanted in (("addcdiv", (1.5, 3.0)), ("addcmul", (9.0, 33.0))):
            call = getattr(torch, f"_foreach_{name}")
            assert [t[0].item() for t in call(x, y, y, numbers)] == list(wanted), name
            in_place = [t.clone() for t in x]
            getattr(torch, f"_foreach_{name}_")(in_place, y, y, numbers)
            assert [t[0].item() for t in in_place] == list(wanted), name
            raises("RuntimeError", "Expected scalars to be on CPU, got cuda:0",
                   lambda: call(x, y, y, numbers.cuda()))
            raises("RuntimeError", "Expected length of scalars to match input of length 2",
                   lambda: call(x, y, y, numbers[:1]))
        """,
        NAME,
    )
