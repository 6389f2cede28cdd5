"""Scaled dot-product attention under CUDA's name: which of CUDA's kernels takes a call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner
from torch_loom.torch_version import minor_of

PROGRAMS = Path(__file__).parent / "programs" / "attention_choice"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}


@pytest.mark.long
def test_the_kernel_is_the_one_that_cuda_takes(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_kernel_is_the_one_that_cuda_takes.py", env=NAME)


@pytest.mark.slow
def test_triangles_of_either_corner(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "triangles_of_either_corner.py", env=NAME)


@pytest.mark.slow
def test_compiled_graphs_with_attention_are_replayed(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "compiled_graphs_with_attention_are_replayed.py", env=NAME)


@pytest.mark.long
@pytest.mark.skipif(minor_of(torch.__version__) >= (2, 14), reason="PyTorch keeps them since 2.14")
def test_a_gradient_of_the_mask_alone_is_refused_as_on_cuda(warm_python: PythonRunner) -> None:
    """The memory-efficient kernel keeps sums for its backward only where query, key or value needs them."""
    warm_python(PROGRAMS / "a_gradient_of_the_mask_alone_is_refused_as_on_cuda.py", NAME)
