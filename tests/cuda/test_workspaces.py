"""The memory that libraries of matrix products keep on a GPU: when it is taken, how much, when it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "workspaces"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.long
def test_the_first_product_of_a_stream_takes_it(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "the_first_product_of_a_stream_takes_it.py", NAME)


@pytest.mark.long
def test_each_thread_has_a_handle_and_leaves_it_to_the_next(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "each_thread_has_a_handle_and_leaves_it_to_the_next.py", NAME)


@pytest.mark.long
@pytest.mark.parametrize(
    ("chip", "settings", "of_a_product", "with_a_bias"),
    [
        ("h200", {}, 32 << 20, 0),
        ("a100", {}, 8519680, 0),
        ("h200", {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}, 8519680, 0),
        ("a100", {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, 16 * 8 * 1024, 0),
        ("h200", {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}, 0, 0),
        ("h200", {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}, 32 << 20, 1 << 20),
        (
            "a100",
            {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "4096"},
            8519680,
            4 << 20,
        ),
    ],
)
def test_sizes(
    warm_python: PythonRunner, chip: str, settings: dict[str, str], of_a_product: int, with_a_bias: int
) -> None:
    warm_python(
        PROGRAMS / "sizes.py",
        {**NAME, "TORCH_LOOM_CHIP": chip, **settings},
        given=(with_a_bias, of_a_product),
    )


def test_sizes_of_the_program(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "sizes_of_the_program.py", NAME)


@pytest.mark.long
def test_a_size_that_is_none(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_size_that_is_none.py", {**NAME, "CUBLAS_WORKSPACE_CONFIG": "large"})


@pytest.mark.long
def test_convolutions_take_it_for_a_call(warm_python: PythonRunner) -> None:
    settings = {"TORCH_LOOM_CHIP": "h200", "TORCH_LOOM_DRIVER": "null", "CUBLAS_WORKSPACE_CONFIG": ":0:0"}
    warm_python(PROGRAMS / "convolutions_take_it_for_a_call.py", {**NAME, **settings})


@pytest.mark.long
def test_captures_take_it_of_their_pool(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "captures_take_it_of_their_pool.py", NAME)


@pytest.mark.long
def test_no_room_for_it(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "no_room_for_it.py", {**NAME, "TORCH_LOOM_MEMORY": "64MiB"})


@pytest.mark.long
@pytest.mark.parametrize("environment", [{}, {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "loom1"}])
def test_other_devices_have_none(warm_python: PythonRunner, environment: dict[str, str]) -> None:
    warm_python(PROGRAMS / "other_devices_have_none.py", environment)


@pytest.mark.long
def test_a_dry_run_has_its_own(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_dry_run_has_its_own.py", NAME)
