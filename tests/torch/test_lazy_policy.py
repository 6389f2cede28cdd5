"""The lazy policy, which holds for a whole process, in processes of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner
from tests.suite import run_suite

PROGRAMS = Path(__file__).parent / "programs" / "lazy_policy"

LAZY = {"TORCH_LOOM_MEMORY_POLICY": "lazy"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_host_side_and_moves(tmp_path: Path) -> None:
    assert run_suite(tmp_path, LAZY, "tests/torch/test_lazy.py", "tests/torch/test_lazy_moves.py") == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_other_tests_of_ops_and_devices(tmp_path: Path) -> None:
    # Filling on the host is no command of the device's, so there is no race, copy or wait to look at; and the
    # move of a tensor waits for the stream that made it, which these tests hold up. PyTorch's memory profile
    # takes a tensor that moves for two. What is never used takes no memory of a plan,
    # and makes no peak.
    eager_only = (
        "tests/device/test_busy.py",
        "tests/device/test_cuda_names.py::test_errors_are_caught_under_cudas_names",
        "tests/device/test_explain.py",
        "tests/device/test_graph_errors.py::test_memory_for_streams_that_are_not_captured",
        "tests/device/test_ipc.py::test_what_was_sent_is_kept_while_another_process_holds_it",
        "tests/device/test_like_cuda.py::test_a_profile_becomes_a_snapshot",
        "tests/device/test_memory_viz.py::test_host_allocator",
        "tests/device/test_pinned_ranges.py",
        "tests/device/test_pool_checkpoints.py",
        "tests/device/test_plan.py::test_libraries_take_a_workspace_for_each_thread_and_stream",
        "tests/device/test_plan.py::test_models_larger_than_this_machine_cost_nothing",
        "tests/device/test_plan_batches.py",
        "tests/device/test_profiler.py",
        "tests/device/test_sanitizer_classes.py",
        "tests/device/test_sync_debug.py",
        "tests/device/test_telemetry.py",
        "tests/device/test_sanitizer.py",
        "tests/device/test_sanitizer_races.py",
        "tests/torch/test_queued_ops.py",
        "tests/torch/test_inferred_outputs.py::test_the_first_call_on_a_busy_stream_does_not_wait",
        "tests/torch/test_simulated_clock.py::test_a_kernel_of_which_nobody_is_told_costs_the_same",
        "tests/torch/test_stream_failures.py",
        "tests/torch/test_copies.py::test_pinned_memory_is_kept_until_its_copy_has_finished",
        "tests/device/test_memory.py::test_private_pools",
    )
    left_out = [f"--deselect={name}" for name in eager_only]
    skipped = run_suite(
        tmp_path, LAZY, "tests/torch", "tests/device", "--ignore-glob=*/test_lazy*.py", *left_out
    )
    assert skipped == {"tests.device.test_memory_history"}, (
        "it expects memory to be taken where a tensor is made"
    )


@pytest.mark.slow
def test_a_training_run_has_the_same_bits_under_both_policies(warm_python: PythonRunner) -> None:
    lazy_digest, lazy_moves = warm_python(PROGRAMS / "training.py", LAZY).stdout.split()
    eager_digest, eager_moves = warm_python(PROGRAMS / "training.py").stdout.split()
    assert lazy_digest == eager_digest
    assert int(lazy_moves) > 0 == int(eager_moves)


def test_the_eager_policy_counts_nothing(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "the_eager_policy_counts_nothing.py")


def test_a_driver_without_arithmetic_takes_no_host_memory(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "a_driver_without_arithmetic_takes_no_host_memory.py",
        {**LAZY, "TORCH_LOOM_DRIVER": "null"},
    )


@pytest.mark.slow
def test_a_forked_child_frees_what_waited(warm_python: PythonRunner) -> None:
    warm_python(PROGRAMS / "a_forked_child_frees_what_waited.py", LAZY)


@pytest.mark.slow
def test_the_vendors_device_is_lazy(warm_python: PythonRunner) -> None:
    name = {"TORCH_LOOM_DEVICE_NAME": "rbln"}
    assert warm_python(PROGRAMS / "the_vendors_device_is_lazy.py", name).stdout.split() == [
        "0",
        "4096",
        "4096",
    ]
    assert warm_python(
        PROGRAMS / "the_vendors_device_is_lazy.py", {**name, "TORCH_RBLN_EAGER_MALLOC": "1"}
    ).stdout.split() == [
        "4096",
        "0",
        "4096",
    ]


def test_the_end_of_a_dry_run_takes_no_memory_for_what_waits(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "the_end_of_a_dry_run_takes_no_memory_for_what_waits.py", LAZY)
