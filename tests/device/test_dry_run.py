"""Dry runs: a part of a program on devices that compute nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_loom.config import dry_runs
from torch_loom.errors import ConfigurationError

PROGRAMS = Path(__file__).parent / "programs" / "dry_run"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


def test_inside_the_devices_are_others(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "inside_the_devices_are_others.py", {"TORCH_LOOM_CHIP": "loom1"})


@pytest.mark.long
def test_training_is_planned_and_runs_out_of_memory(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "training_is_planned_and_runs_out_of_memory.py",
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY": "1GiB"},
    )


@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_tensors_of_the_program_are_refused_inside(fork_loom: PythonRunner, policy: str) -> None:
    fork_loom(
        PROGRAMS / "refused_inside.py", {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY_POLICY": policy}
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_tensors_that_outlive_it_have_a_shape_and_are_freed(fork_loom: PythonRunner, policy: str) -> None:
    fork_loom(
        PROGRAMS / "tensors_that_outlive_it_have_a_shape_and_are_freed.py",
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY_POLICY": policy},
    )


def test_lazy_modules_are_planned(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "lazy_modules_are_planned.py", {"TORCH_LOOM_CHIP": "loom1"})


def test_parameters_of_devices_that_are_not_there_are_refused(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "parameters_of_devices_that_are_not_there_are_refused.py", {"TORCH_LOOM_CHIP": "loom1"}
    )


def test_exceptions_restore_and_nesting_is_refused(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "exceptions_restore_and_nesting_is_refused.py", {"TORCH_LOOM_CHIP": "loom1"})


def test_streams_events_generators_and_graphs_belong_to_their_world(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "streams_events_generators_and_graphs_belong_to_their_world.py",
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_threads_and_backward_passes(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "threads_and_backward_passes.py", {"TORCH_LOOM_CHIP": "loom1"})


@pytest.mark.slow
def test_threads_that_work_while_it_begins_and_ends(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "threads_that_work_while_it_begins_and_ends.py", {"TORCH_LOOM_CHIP": "loom1"})


@pytest.mark.long
def test_a_forked_child_inside(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "a_forked_child_inside.py", {"TORCH_LOOM_CHIP": "loom1"})


def test_pinned_memory_is_the_hosts(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "pinned_memory_is_the_hosts.py", {"TORCH_LOOM_CHIP": "loom1"})


def test_chips_may_differ_and_fall_back(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "chips_may_differ_and_fall_back.py",
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_FALLBACK": "allow"},
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"devices": 0}, "devices=0"),
        ({"devices": 65}, "1 to 64"),
        ({"devices": True}, "not a number"),
        ({"devices": 2, "chip": ["h200"] * 3}, "3 in the list for 2 devices"),
        ({"chip": ["h200"] * 3, "memory": ["1GiB", "2GiB"]}, "2 in the list for 3 devices"),
        ({"chip": []}, "a list of 0"),
        ({"chip": ""}, "neither a name nor a path"),
        ({"chip": 3}, "wrong type"),
        ({"memory": "1"}, "out of range"),
        ({"memory": 1.5}, "wrong type"),
        ({"memory": ["1GiB", None]}, "wrong type"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        dry_runs.request(
            arguments.get("chip"),  # type: ignore[arg-type]
            arguments.get("devices"),  # type: ignore[arg-type]
            arguments.get("memory"),  # type: ignore[arg-type]
        )
