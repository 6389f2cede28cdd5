"""Ops on lists of tensors under CUDA's name: one kernel where CUDA has one, else a kernel for each tensor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "foreach_routes"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}


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
    warm_python(PROGRAMS / "routes.py", NAME, given=(FAST, SLOW))


@pytest.mark.slow
def test_other_chips_take_every_list_at_once(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "other_chips_take_every_list_at_once.py", NAME | {"TORCH_LOOM_CHIP": "loom1"})


def test_numbers_in_a_tensor_are_the_hosts(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "numbers_in_a_tensor_are_the_hosts.py", NAME)
