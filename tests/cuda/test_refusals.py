"""A GPU refuses, in CUDA's words, what the CPU has kernels for and CUDA has not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DispatchKey

from tests.conftest import PythonRunner
from torch_loom.cuda.refusals import REFUSAL_CASES, REFUSALS, TAKES

PROGRAMS = Path(__file__).parent / "programs" / "refusals"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
def test_calls_that_cuda_has_no_kernel_for(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "calls_that_cuda_has_no_kernel_for.py", NAME)


@pytest.mark.long
def test_linear_algebra_names_cudas_kernels(warm_python: PythonRunner) -> None:
    """In the order of CUDA's checks: shapes first, then the dtype, and of nothing often none."""
    warm_python(PROGRAMS / "linear_algebra_names_cudas_kernels.py", NAME)


@pytest.mark.long
def test_sums_of_matrices_by_row(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "sums_of_matrices_by_row.py", NAME)


@pytest.mark.slow
def test_products_that_cuda_takes_in_some_shapes_only(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "products_that_cuda_takes_in_some_shapes_only.py", NAME)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["a100", "wormhole_b0"])
def test_scaled_products_by_chip(warm_python: PythonRunner, chip: str) -> None:
    warm_python(PROGRAMS / "scaled_products_by_chip.py", NAME | {"TORCH_LOOM_CHIP": chip})


@pytest.mark.slow
def test_only_gpus_refuse(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "only_gpus_refuse.py", {**NAME, "TORCH_LOOM_CHIP": "loom1"})


def test_no_other_name_refuses() -> None:
    x = torch.ones(2, 2, dtype=torch.long, device="loom")
    assert (x @ x).sum() == 8


# What the database says that CUDA lacks, and is not refused here.
OPEN = {
    "norm": "complex32, for which the CPU has a rounding of its own",
    "torch._scaled_mm": "dtypes of AMD's",
    "torch._scaled_mm_v2": "dtypes of AMD's",
}


@pytest.mark.slow
def test_the_table_is_what_cuda_takes(warm_python: PythonRunner) -> None:
    """For each op that takes a dtype on the CPU and not on CUDA: that dtype is refused, and no other is."""
    warm_python(PROGRAMS / "the_table_is_what_cuda_takes.py", NAME)


@pytest.mark.long
def test_ops_of_libraries_of_the_cpu(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "ops_of_cpu_libraries.py", NAME)


@pytest.mark.long
def test_refused_ops_are_the_cpus_alone() -> None:
    """Ops without a kernel for CUDA are those that PyTorch declares none for."""
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    absent = {name for name, refusal in REFUSALS.items() if refusal.case == "absent"}
    found = set()
    for function in parsed.native_functions:
        name = str(function.func.name)
        if not {name, name.partition(".")[0]} & absent or "autogen" in function.tags:
            continue
        if parsed.backend_indices[DispatchKey.CPU].has_kernel(function):
            assert not parsed.backend_indices[DispatchKey.CUDA].has_kernel(function), name
            found |= {name, name.partition(".")[0]}
    assert absent <= found


def test_the_table_names_what_it_declares() -> None:
    for name, refusal in REFUSALS.items():
        assert refusal.takes in TAKES, name
        assert refusal.case in REFUSAL_CASES, name
