"""What PyTorch's Python and libraries ask of CUDA beside torch.cuda's public names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "answers"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_names_of_cuda_builds(warm_python: PythonRunner) -> None:
    """Functions that PyTorch's own Python calls by name do what torch.cuda's do; test_names_of_c has all."""
    warm_python(PROGRAMS / "names_of_cuda_builds.py", NAME)


@pytest.mark.slow
def test_profiles_have_rows_of_the_device(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "profiles_have_rows_of_the_device.py", NAME)


@pytest.mark.slow
def test_other_libraries_do_not_get_an_address(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "other_libraries_do_not_get_an_address.py", NAME)


@pytest.mark.slow
def test_inductor_compiles_models_to_cpp(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "inductor_compiles_models_to_cpp.py", NAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,9,1", 1), ("0,0", 0), ("GPU-8932f937", 0)],
)
def test_visible_devices(warm_python: PythonRunner, text: str, count: int) -> None:
    warm_python(
        PROGRAMS / "visible_devices.py",
        {**NAME, "CUDA_VISIBLE_DEVICES": text, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        given=(count, count > 0, text),
    )


@pytest.mark.slow
def test_gradient_of_long_rows(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "gradient_of_long_rows.py", NAME)


@pytest.mark.slow
def test_variables_of_cuda(run_python: PythonRunner) -> None:
    program = PROGRAMS / "variables_of_cuda.py"
    variables = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_CUDA_SANITIZER": "1"}
    run_python(program, {**NAME, **variables}, given=("blocking", True))
    run_python(program, NAME, given=("auto", False))
    # Our own setting comes first, and under another name CUDA's mean nothing.
    ours = {"TORCH_LOOM_LAUNCH": "chaos"}
    run_python(program, {**NAME, **variables, **ours}, given=("chaos", True))
    run_python(
        "from torch_loom import config; assert config.resolve().launch == 'auto'",
        {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "0"},
    )


@pytest.mark.slow
def test_only_devices_in_use_have_a_context(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "only_devices_in_use_have_a_context.py", NAME)


@pytest.mark.long
def test_an_op_without_a_kernel_for_cuda_has_none(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "an_op_without_a_kernel_for_cuda_has_none.py", {"TORCH_LOOM_DEVICE_NAME": "cuda"})


@pytest.mark.long
def test_medians_of_repeated_slices(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "medians_of_repeated_slices.py")


def test_outs_of_own_kernels(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "outs_of_own_kernels.py")


@pytest.mark.long
def test_compiled_conversions(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "compiled_conversions.py")
