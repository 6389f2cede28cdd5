"""The classes of torch.loom._sanitizer by themselves; what the sanitizer finds is in the other files."""

from __future__ import annotations

import pickle
import traceback

import pytest
import torch

import torch_loom.device as loom
from torch_loom.device import _sanitizer

HERE = traceback.extract_stack()


def access(kind: _sanitizer.AccessType, number: int, stream: int) -> _sanitizer.Access:
    return _sanitizer.Access(kind, number, stream, "aten::add_", 4096, (2, 3), 4, HERE)


@pytest.mark.exercises("torch.cuda._sanitizer.Access", "torch.cuda._sanitizer.AccessType")
@pytest.mark.exercises("torch.cuda._sanitizer.SynchronizationError")
@pytest.mark.exercises("torch.cuda._sanitizer.UnsynchronizedAccessError")
@pytest.mark.exercises("torch.cuda._sanitizer.CUDASanitizerErrors")
def test_errors_say_who_did_what() -> None:
    kinds = _sanitizer.AccessType
    current, previous = access(kinds.WRITE, 7, 5), access(kinds.READ, 3, 0)
    error = _sanitizer.UnsynchronizedAccessError(4096, HERE, current, previous)
    assert isinstance(error, _sanitizer.SynchronizationError)
    assert (error.current_access, error.previous_access) == (current, previous)
    text = str(error)
    assert text.index("stream 5 of loom:0") < text.index("stream 0 of loom:0")
    assert text.index("writing to a tensor of shape [2, 3]") < text.index("reading from a tensor")
    both = _sanitizer.CUDASanitizerErrors([error, error])
    assert str(both).startswith("detected 2 errors: ")
    assert str(both).index("on stream 5 of loom:0 (") < str(both).index("on stream 0 of loom:0 (")
    assert "test_sanitizer_classes.py:" in str(both)
    assert str(_sanitizer.CUDASanitizerErrors([])) == "detected 0 errors"
    assert both.errors == [error, error]


@pytest.mark.parametrize("name", [name for name in _sanitizer.__all__ if "Error" in name])
def test_errors_go_by_their_public_name(name: str) -> None:
    error = getattr(_sanitizer, name)
    assert error.__module__ == "torch.loom._sanitizer"
    assert pickle.loads(pickle.dumps(error)) is error


@pytest.mark.exercises("torch.cuda._sanitizer.TensorInfo")
def test_the_handler_knows_blocks_with_the_stack_that_allocated_them() -> None:
    with _sanitizer.CUDASanitizerDispatchMode() as mode:
        x = torch.ones(64, device="loom")
        seen = mode.event_handler.seq_num
        x.add_(1)
        assert mode.event_handler.seq_num == seen + 1
    info = _sanitizer.TensorInfo(x.data_ptr(), 256, 0, None)
    assert info.end - info.address == 256
    assert info.allocation_stack_trace is None


@pytest.mark.exercises("torch.cuda._sanitizer.CUDASanitizer")
def test_a_sanitizer_of_ones_own() -> None:
    own = _sanitizer.CUDASanitizer()
    own.enable()
    try:
        x = torch.ones(8, device="loom")
        with loom.stream(loom.Stream()), pytest.raises(_sanitizer.CUDASanitizerErrors):
            x.add_(1)
        assert own.enabled
        assert not _sanitizer.cuda_sanitizer.enabled
    finally:
        own.disable()
    x = torch.ones(8, device="loom")
    with loom.stream(loom.Stream()):
        x.add_(1)
    assert not own.enabled
    loom.synchronize()


def test_names_of_numbers() -> None:
    """Handlers of programs are annotated with them."""
    assert _sanitizer.DataPtr is _sanitizer.StreamId is _sanitizer.EventId is _sanitizer.SeqNum is int
