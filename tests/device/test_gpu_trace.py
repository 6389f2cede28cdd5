"""Callbacks of torch.loom._gpu_trace. They stay for the life of a process: each test has its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "gpu_trace"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

FUNCTIONS = (
    "register_callback_for_device_synchronization",
    "register_callback_for_event_creation",
    "register_callback_for_event_deletion",
    "register_callback_for_event_record",
    "register_callback_for_event_synchronization",
    "register_callback_for_event_wait",
    "register_callback_for_memory_allocation",
    "register_callback_for_memory_deallocation",
    "register_callback_for_stream_creation",
    "register_callback_for_stream_synchronization",
)


@pytest.mark.exercises(
    "torch.cuda._gpu_trace.register_callback_for_device_synchronization",
    "torch.cuda._gpu_trace.register_callback_for_event_creation",
    "torch.cuda._gpu_trace.register_callback_for_event_deletion",
    "torch.cuda._gpu_trace.register_callback_for_event_record",
    "torch.cuda._gpu_trace.register_callback_for_event_synchronization",
    "torch.cuda._gpu_trace.register_callback_for_event_wait",
    "torch.cuda._gpu_trace.register_callback_for_memory_allocation",
    "torch.cuda._gpu_trace.register_callback_for_memory_deallocation",
    "torch.cuda._gpu_trace.register_callback_for_stream_creation",
    "torch.cuda._gpu_trace.register_callback_for_stream_synchronization",
)
def test_each_kind(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "each_kind.py", given=FUNCTIONS)


def test_several_callbacks_and_their_errors(fork_loom: PythonRunner) -> None:
    done = fork_loom(PROGRAMS / "several_callbacks_and_their_errors.py", given=())
    assert "Exception in callback for memory allocation" in done.stderr
    assert "the callback failed" in done.stderr


def test_is_a_module_of_the_device() -> None:
    import torch

    assert torch.loom._gpu_trace is loom._gpu_trace  # type: ignore[attr-defined]
    assert set(loom._gpu_trace.__all__) == set(FUNCTIONS)
