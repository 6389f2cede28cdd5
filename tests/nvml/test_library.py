"""NVML's library: asked by nvidia-ml-py and nvitop as installed, in processes with torch and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.nvml.conftest import Environment, Program
from torch_loom import chips

PROGRAMS = Path(__file__).parent / "programs" / "library"

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


def test_devices_of_a_process_without_torch(under_loom_run: Environment, run_without_torch: Program) -> None:
    h200 = chips.load("h200")
    figures = {
        "memory_bytes": h200.memory_bytes,
        "driver_memory_bytes": h200.driver_memory_bytes,
        "num_cores": h200.num_cores,
        "memory_bus_bits": h200.memory_bus_bits,
        "power_idle_milliwatts": round(1000 * h200.power_idle_watts),
        "power_max_milliwatts": round(1000 * h200.power_max_watts),
        "temperature_idle_celsius": h200.temperature_idle_celsius,
        "clock_idle_mhz": h200.clock_idle_mhz,
        "clock_mhz": h200.clock_mhz,
        "memory_clock_mhz": h200.memory_clock_mhz,
        "last_link": h200.num_links - 1,
    }
    run_without_torch(PROGRAMS / "devices_of_a_process_without_torch.py", under_loom_run(), given=figures)


def test_every_function_answers_or_refuses(under_loom_run: Environment, run_without_torch: Program) -> None:
    """Of nvidia-ml-py: with a device and zeros, or where it wants a structure, room for one."""
    done = run_without_torch(
        PROGRAMS / "every_function_answers_or_refuses.py",
        under_loom_run(),
    )
    # These want structures of their own, and would be reached with those.
    assert len(done.stdout.split()) < 20, done.stdout


def test_threads(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        PROGRAMS / "threads.py",
        under_loom_run(),
    )


def test_a_chip_that_is_no_gpu(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        PROGRAMS / "a_chip_that_is_no_gpu.py",
        under_loom_run(TORCH_LOOM_CHIP="atom", TORCH_LOOM_MEMORY="3GiB"),
    )


def test_settings_of_a_process_itself_count(under_loom_run: Environment, run_without_torch: Program) -> None:
    """What was described under other settings is described anew, by a process that has no torch either."""
    environment = under_loom_run()
    environment |= {"TORCH_LOOM_CHIP": "a100,h100", "TORCH_LOOM_DEVICES": "2"}
    run_without_torch(
        PROGRAMS / "settings_of_a_process_itself_count.py",
        environment,
        given=(chips.load("a100").product_name, chips.load("h100").product_name),
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"TORCH_LOOM_CHIP": "h2000"}, "There is no chip 'h2000'"), ({"TORCH_LOOM_NVML": None}, "")],
    ids=["bad setting", "outside of loom run"],
)
def test_no_driver(
    under_loom_run: Environment, run_without_torch: Program, changed: dict[str, str | None], words: str
) -> None:
    merged = {**under_loom_run(), **changed}
    done = run_without_torch(
        PROGRAMS / "no_driver.py",
        {name: value for name, value in merged.items() if value is not None},
    )
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("version", "driver"), [("12.8", "570"), ("12.7", "570"), ("99.9", "595")])
def test_versions(under_loom_run: Environment, run_without_torch: Program, version: str, driver: str) -> None:
    run_without_torch(
        PROGRAMS / "versions.py",
        under_loom_run(TORCH_LOOM_CUDA_VERSION=version),
        given=(driver, version, version.split(".")[0]),
    )


def test_nvitop(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        PROGRAMS / "nvitop.py",
        under_loom_run(TORCH_LOOM_CHIP="a100"),
    )


@pytest.mark.slow
def test_agrees_with_torch_cuda(warm_python: PythonRunner) -> None:
    """Memory, and what a kernel that runs for all of a second makes of a device."""
    warm_python(
        PROGRAMS / "agrees_with_torch_cuda.py",
        {**NAME, "TORCH_LOOM_MACHINE": "nvml_agrees", "TORCH_LOOM_CLOCK": "wall"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["none", "nvml_fork"])
def test_configured_devices_and_forked_children(warm_python: PythonRunner, machine: str) -> None:
    warm_python(
        PROGRAMS / "configured_devices_and_forked_children.py",
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MACHINE": machine},
        given=machine,
    )


@pytest.mark.slow
def test_without_nvidia_ml_py(warm_python: PythonRunner) -> None:
    """The functions that the package has itself, under another name of the devices."""
    warm_python(
        PROGRAMS / "without_nvidia_ml_py.py",
        {"TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_MACHINE": "nvml_test_of_loom"},
    )
