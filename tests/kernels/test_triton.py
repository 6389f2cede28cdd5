"""Triton's kernels on the devices, each program in a process of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
]


def test_launches(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "launches.py", NAME)


def test_bad_input(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "bad_input.py", NAME)


def test_inline_assembly(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "inline_assembly.py", NAME)


def test_functions_of_the_library(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "library_functions.py", NAME)


@pytest.mark.parametrize("settings", [{}, {"TORCH_LOOM_SANITIZER": "1"}])
def test_reshaped_blocks(warm_python: PythonRunner, settings: dict[str, str]) -> None:
    warm_python(PROGRAMS / "reshaped_blocks.py", {**NAME, **settings})


@pytest.mark.parametrize("settings", [{}, {"TORCH_LOOM_SANITIZER": "1"}])
def test_descriptors_block_pointers_histograms_and_scaled_products(
    warm_python: PythonRunner, settings: dict[str, str]
) -> None:
    warm_python(PROGRAMS / "blocks_in_memory.py", {**NAME, **settings})


def test_heuristics_hooks_warmup_and_ops(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "around_launches.py", NAME)


def test_exponentials_of_all_floats(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "powers.py", NAME)


def test_floats_of_eight_bits(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "eight_bits.py", NAME)


def test_reductions_of_halves_by_a_descriptor(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "descriptor_reductions.py", NAME)


def test_libraries_find_triton_and_inductor_generates_cpp(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "found.py", NAME)


def test_a_kernel_that_does_not_end_is_named(warm_python: PythonRunner) -> None:
    settings = {**NAME, "TORCH_LOOM_KERNEL_TIMEOUT": "0.2", "TORCH_LOOM_ASSERTS": "immediate"}
    shown = warm_python(PROGRAMS / "endless.py", settings).stdout
    assert shown.startswith("702 CUDA error: the launch timed out and was terminated\n"), shown
    assert "waits_for_a_later_program" in shown
    assert (
        f"endless.py:{line_of('# it comes in order', 'endless.py')}: program (0, 0, 0) of (1, 1, 1)" in shown
    )
    assert "TORCH_LOOM_KERNEL_TIMEOUT" in shown


@pytest.mark.parametrize(("choice", "chosen"), [("first", "16 16\n"), ("model", "32 128\n")])
def test_the_choice_among_configurations(warm_python: PythonRunner, choice: str, chosen: str) -> None:
    settings = {**NAME, "TORCH_LOOM_AUTOTUNE": choice, "TORCH_LOOM_CHIP": "h100"}
    assert warm_python(PROGRAMS / "tuned.py", settings).stdout == chosen


def test_a_measured_time_is_the_kernels(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "benched.py", {**NAME, "TORCH_LOOM_CHIP": "h100"})


def test_a_child_that_was_forked_before_the_first_launch(warm_python: PythonRunner) -> None:
    shown = warm_python(PROGRAMS / "forked.py", NAME).stdout
    assert shown == "child 2.0\nparent 2.0\n"


def test_many_threads(warm_python: PythonRunner) -> None:
    assert warm_python(PROGRAMS / "many_threads.py", NAME).stdout == "8 threads, 10000 launches\n"


def test_ctrl_c_in_a_compilation(warm_python: PythonRunner, tmp_path: Path) -> None:
    folders = {
        "TORCH_LOOM_KERNEL_CACHE": str(tmp_path / "loom"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }
    shown = warm_python(PROGRAMS / "interrupted.py", {**NAME, **folders}).stdout
    assert shown == "interrupted\n2.0 []\n"


@pytest.mark.timeout(300)
def test_inductor_generates_what_it_does_for_a_gpu(warm_python: PythonRunner) -> None:
    settings = {**NAME, "TORCH_LOOM_INDUCTOR": "triton", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    warm_python(PROGRAMS / "inductor_triton.py", settings)


@pytest.mark.parametrize("protects", ["0", "1"])
def test_addresses_that_are_no_arguments(warm_python: PythonRunner, protects: str) -> None:
    settings = {**NAME, "TORCH_LOOM_PROTECT": protects, "TORCH_LOOM_ASSERTS": "immediate"}
    assert warm_python(PROGRAMS / "protected.py", settings).stdout == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize("generates", ["cpp", "triton"])
def test_what_inductor_asks_of_a_gpu(warm_python: PythonRunner, generates: str) -> None:
    warm_python(PROGRAMS / "asked_by_inductor.py", {**NAME, "TORCH_LOOM_INDUCTOR": generates})


@pytest.mark.slow
def test_addresses_of_received_tensors(run_python: PythonRunner) -> None:
    right, wrong = run_python(PROGRAMS / "received.py", NAME).stdout.splitlines()
    assert right == "True"
    assert "reads 4 bytes" in wrong
    assert "0 bytes after the end of argument x, 800 bytes that are given by their address" in wrong


def test_a_device_without_kernels_runs_no_program(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "dry.py", {**NAME, "TORCH_LOOM_DRIVER": "null"})


ILLEGAL = "700 CUDA error: an illegal memory access was encountered\n"
# What reads where, by its text in programs/kernels.py.
FAULTS = {
    "missing mask": (
        "tl.load(x + at))",
        "reads 4 bytes",
        "0 bytes after the end of argument x, a tensor of Float [1000]",
    ),
    "by one": (
        "tl.load(x + at + by",
        "reads 4 bytes",
        "0 bytes after the end of argument x, a tensor of Float [1000]",
    ),
    "in front": (
        "tl.load(x + at + by",
        "reads 4 bytes",
        "4 bytes before the begin of argument x, a tensor of Float [1000]",
    ),
    "other tensor": (
        "tl.load(x + at + by",
        "reads 4 bytes",
        "bytes after the end of argument x, a tensor of Float [1000]",
    ),
    "wrong stride": (
        "row * stride",
        "program (3, 0, 0) of (4, 1, 1) reads",
        "argument x, a tensor of Float [4, 256]",
    ),
    "most programs": (
        "row * stride",
        "program (100, 0, 0) of (4000, 1, 1) reads",  # the first of them, however the threads ran
        "argument x, a tensor of Float [100, 256]",
    ),
    "expanded": (
        "row * stride",
        "program (0, 0, 0) of (4, 1, 1) reads",
        "0 bytes after the end of argument x, a tensor of Float [4, 256] with strides [0, 0]",
    ),
    "index": (
        "tl.load(index + at)",
        "reads 4 bytes",
        "0 bytes after the end of argument x, a tensor of Float [1000]",
    ),
    "null": ("address.to(", "reads 4 bytes at 0x0", "memory that is no tensor's"),
    "freed": ("address.to(", "reads 4 bytes", "memory that is no tensor's"),
}


def line_of(text: str, name: str = "kernels.py") -> int:
    """Return the only line of the kernels that has a text."""
    lines = (PROGRAMS / name).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_an_access_outside_of_its_argument(warm_python: PythonRunner, fault: str) -> None:
    text, *words = FAULTS[fault]
    shown = warm_python(PROGRAMS / "faults.py", NAME, given=fault).stdout
    assert shown.startswith(ILLEGAL), shown
    assert shown.endswith("sticky\n")
    for word in (f"kernels.py:{line_of(text)}: ", *words):
        assert word in shown, shown


def test_an_assertion(warm_python: PythonRunner) -> None:
    shown = warm_python(PROGRAMS / "faults.py", NAME, given="assertion").stdout
    assert shown.startswith("710 CUDA error: device-side assert triggered\n"), shown
    place = f"kernels.py:{line_of('device_assert')}"
    assert f"{place}: program (0, 0, 0): the assertion failed: all are positive" in shown


def test_programs_without_a_fault(warm_python: PythonRunner) -> None:
    assert warm_python(PROGRAMS / "faults.py", NAME, given="none").stdout == "nothing\n"


def test_errors_that_do_not_stay(warm_python: PythonRunner) -> None:
    settings = {**NAME, "TORCH_LOOM_ASSERTS": "immediate"}
    shown = warm_python(PROGRAMS / "faults.py", settings, given="by one").stdout
    assert shown.startswith(ILLEGAL)
    assert "sticky" not in shown
