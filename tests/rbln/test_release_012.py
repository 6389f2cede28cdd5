"""What torch-rbln 0.12.0 has and earlier versions had not, under the vendor's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.rbln.vendor import NAME

PROGRAMS = Path(__file__).parent / "programs" / "release_012"
REBEL = {**NAME, "TORCH_LOOM_CHIP": "rebel"}


@pytest.mark.long
def test_the_modules_of_the_package(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "modules.py", NAME)


@pytest.mark.exercises("torch.rbln.Stream", "torch.rbln.Event", "torch.rbln.Event.elapsed_time")
@pytest.mark.exercises("torch.rbln.Stream.priority", "torch.rbln.Stream.priority_range")
@pytest.mark.exercises("torch.rbln.Stream.record_event", "torch.rbln.current_stream")
def test_streams_without_priorities_and_events_without_times(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "streams.py", NAME)


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ("RBLN-CA12", 1, 1, int(15.7 * 2**30))),
        ({"TORCH_LOOM_CHIP": "atom_max"}, ("RBLN-CA25", 1, 1, int(15.7 * 2**30))),
        ({"TORCH_LOOM_CHIP": "rebel"}, ("RBLN-CR13", 1, 4, 35 << 30)),
        ({"TORCH_LOOM_CHIP": "rebel", "RBLN_NPUS_PER_DEVICE": "2"}, ("RBLN-CR13", 2, 4, 35 << 30)),
    ],
)
@pytest.mark.exercises("torch.rbln.get_device_properties", "torch.rbln.get_device_name")
@pytest.mark.exercises("torch.rbln.is_initialized", "torch.rbln.physical_device_count")
def test_what_an_npu_is(
    fork_python: PythonRunner, env: dict[str, str], expected: tuple[str, int, int, int]
) -> None:
    fork_python(PROGRAMS / "devices.py", {**NAME, **env}, given=expected)


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.memory_stats_per_chiplet", "torch.rbln.mem_get_info_per_chiplet")
@pytest.mark.exercises("torch.rbln.memory_summary", "torch.rbln.mem_get_info")
def test_memory_by_chiplet(fork_python: PythonRunner) -> None:
    env = {**REBEL, "TORCH_LOOM_DEVICES": "4", "TORCH_LOOM_MEMORY": "4GiB", "RBLN_DEVICE_MAP": "[1,3]"}
    fork_python(PROGRAMS / "chiplets.py", env)


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.bind_device_memory", "torch.rbln.set_device_layout_like")
def test_device_memory_before_an_op_needs_it(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "device_memory.py", NAME)


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.huge_host_empty")
def test_huge_host_memory(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "huge_host_memory.py", NAME)


@pytest.mark.long
@pytest.mark.exercises("torch.rbln.physical_device_count", "torch.rbln.device_summary")
def test_the_newer_name_of_visible_devices(fork_python: PythonRunner) -> None:
    env = {**NAME, "TORCH_LOOM_DEVICES": "4", "RBLN_VISIBLE_DEVICES": "3,1", "RBLN_DEVICES": "0"}
    done = fork_python(PROGRAMS / "visible_devices.py", env)
    assert "| rbln:1         | [ 1 ]            | Active |" in done.stdout
