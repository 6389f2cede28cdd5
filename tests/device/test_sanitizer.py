"""The sanitizer: its names, when it is on, its reports, and the parts that it is made of."""

from __future__ import annotations

import gc
import importlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torch_loom import _C
from torch_loom.device import _sanitizer, sanitizer
from torch_loom.device.sanitizer import regions
from torch_loom.device.sanitizer.clocks import pack_stream, unpack_stream

PROGRAMS = Path(__file__).parent / "programs" / "sanitizer"

Errors = _sanitizer.CUDASanitizerErrors


@pytest.fixture
def sanitized() -> Iterator[_sanitizer.TapeHandler]:
    torch.loom.synchronize()
    sanitizer.enable()
    yield _sanitizer.cuda_sanitizer.dispatch.event_handler
    sanitizer.disable()
    torch.loom.synchronize()


def _race() -> torch.Tensor:
    x = torch.ones(64, 32, device="loom")
    with torch.loom.stream(torch.loom.Stream()):
        x.add_(1)
    return x


def test_names_of_cuda() -> None:
    cuda = importlib.import_module("torch.cuda._sanitizer")
    for name in [
        "AccessType",
        "Access",
        "SynchronizationError",
        "UnsynchronizedAccessError",
        "CUDASanitizerErrors",
        "TensorInfo",
        "StreamSynchronizations",
        "EventHandler",
        "CUDASanitizerDispatchMode",
        "CUDASanitizer",
        "enable_cuda_sanitizer",
    ]:
        assert hasattr(cuda, name)
        assert getattr(torch.loom._sanitizer, name).__name__ == name
    assert torch.loom._sanitizer.LoomSanitizerErrors is Errors
    assert issubclass(_sanitizer.MissingRecordStreamError, _sanitizer.UseAfterFreeError)


def test_on_and_off() -> None:
    assert not torch.loom.sanitizer.is_enabled()
    _race()
    torch.loom.sanitizer.enable()
    torch.loom.sanitizer.enable()
    assert torch.loom.sanitizer.is_enabled()
    with pytest.raises(Errors):
        _race()
    torch.loom.sanitizer.disable()
    torch.loom.sanitizer.disable()
    assert not torch.loom.sanitizer.is_enabled()
    _race()


@pytest.mark.exercises(
    "torch.cuda._sanitizer.CUDASanitizerDispatchMode",
)
def test_as_a_context_manager() -> None:
    with _sanitizer.CUDASanitizerDispatchMode(), pytest.raises(Errors):
        _race()
    _race()


def test_what_came_before_is_not_known() -> None:
    x, side = torch.ones(64, device="loom"), torch.loom.Stream()
    sanitizer.enable()
    try:
        with torch.loom.stream(side):
            x.add_(1)
        with pytest.raises(Errors):
            x.add_(1)
    finally:
        sanitizer.disable()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "blocking"])
def test_environment_variable(mode: str, warm_python) -> None:
    done = warm_python(
        PROGRAMS / "environment_variable.py",
        {"TORCH_LOOM_SANITIZER": "1", "TORCH_LOOM_LAUNCH": mode},
        check=False,
    )
    assert done.returncode == 1
    assert "CSAN detected a possible data race on tensor with data pointer" in done.stderr
    assert "CUDASanitizerErrors: detected 1 errors: aten::add_" in done.stderr.splitlines()[-1]
    assert "runpy" not in done.stderr
    assert "torch_loom/device" not in done.stderr.partition("Traceback")[0]


def test_report(sanitized, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Errors, match="detected 1 errors") as caught:
        _race()
    (error,) = caught.value.errors
    current, previous = error.current_access, error.previous_access
    assert (current.operator, current.type) == ("aten::add_.Scalar", _sanitizer.AccessType.WRITE) or (
        current.operator,
        current.type,
    ) == ("aten::add_.Tensor", _sanitizer.AccessType.WRITE)
    assert previous.operator.startswith("aten::fill_")
    assert unpack_stream(previous.stream) == (0, 0)
    assert current.seq_num > previous.seq_num
    assert (current.data_ptr, current.sizes, current.item_bytes) == (error.data_ptr, (64, 32), 4)
    for stack in (current.stack_trace, previous.stack_trace, error.allocation_stack_trace):
        # Without what runs the test.
        assert [frame.name for frame in stack][-2:] == ["test_report", "_race"]
        assert not any("_pytest" in frame.filename or "pluggy" in frame.filename for frame in stack)
    lines = [stack[-1].lineno for stack in (current.stack_trace, previous.stack_trace)]
    assert str(caught.value) == (
        f"detected 1 errors: {current.operator} on stream {unpack_stream(current.stream)[1]} of loom:0 "
        f"(test_sanitizer.py:{lines[0]}) is not ordered after {previous.operator} on stream 0 of loom:0 "
        f"(test_sanitizer.py:{lines[1]})"
    )
    assert [entry.name for entry in caught.traceback if not entry.ishidden(None)][-1] == "_race"
    text = capsys.readouterr().err
    for part in (
        f"CSAN detected a possible data race on tensor with data pointer {error.data_ptr}\n",
        "during kernel:\naten::add_",
        "writing to a tensor of shape [64, 32], 4 bytes an element, at 0x",
        "Previous access by stream 0 of loom:0 during kernel:\naten::fill_",
        "Tensor was allocated with stack trace:\n",
        "    x.add_(1)\n",
    ):
        assert part in text


@pytest.mark.parametrize("is_pinned", [False, True])
def test_reports_of_copies_say_how_much_goes_where(
    sanitized, capsys: pytest.CaptureFixture[str], is_pinned: bool
) -> None:
    x, side = torch.empty(64, device="loom"), torch.loom.Stream()
    source = torch.ones(64)
    x.copy_(source.pin_memory() if is_pinned else source, non_blocking=True)
    with torch.loom.stream(side), pytest.raises(Errors) as caught:
        x.cpu()
    to_host, to_device = caught.value.errors[0].current_access, caught.value.errors[0].previous_access
    assert to_host.operator == "copy (256 bytes) from loom:0 to cpu"
    host = "pinned memory" if is_pinned else "cpu"
    assert to_device.operator == f"copy (256 bytes) from {host} to loom:0"
    assert f"{to_device.operator}\nwriting to 256 bytes at 0x" in capsys.readouterr().err


def test_the_racy_command_is_not_submitted(sanitized) -> None:
    x, side = torch.ones(64, device="loom"), torch.loom.Stream()
    for _ in range(2):
        with torch.loom.stream(side), pytest.raises(Errors):
            x.add_(1)
    assert torch.loom.current_stream() == torch.loom.default_stream()
    side.wait_stream(torch.loom.default_stream())
    with torch.loom.stream(side):
        x.add_(1)
    side.synchronize()
    assert x.tolist() == [2.0] * 64


def test_all_operands_that_race_are_reported(sanitized) -> None:
    x, y = torch.ones(64, device="loom"), torch.ones(64, device="loom")
    with torch.loom.stream(torch.loom.Stream()), pytest.raises(Errors) as caught:
        torch.add(x, y, out=y)
    assert len(caught.value.errors) == 2
    assert {error.data_ptr for error in caught.value.errors} == {x.data_ptr(), y.data_ptr()}


def test_in_the_backward_pass(sanitized) -> None:
    x = torch.ones(64, device="loom", requires_grad=True)
    loss = (x * x).sum()
    with torch.loom.stream(torch.loom.Stream()):
        x.detach().wait_for = None  # another tensor, the same memory
        with pytest.raises(Errors):
            x.detach().add_(1)
    loss.backward()
    with torch.loom.stream(torch.loom.Stream()), pytest.raises(Errors):
        x.grad.add_(1)


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_leaves_the_backward_pass(sanitized, is_threaded: bool) -> None:
    side = torch.loom.Stream()

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            with torch.loom.stream(side):
                return gradient + 1

    x = torch.ones(64, device="loom", requires_grad=True)
    with torch.autograd.set_multithreading_enabled(is_threaded), pytest.raises(Errors):
        (Late.apply(x) * 3).sum().backward()
    torch.loom.synchronize()
    x.detach().add_(1)


def test_out_of_memory_is_as_it_was(sanitized) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="loom")
    torch.ones(4, device="loom").sum().item()


def test_memory_of_the_sanitizer_is_bounded(sanitized) -> None:
    side = torch.loom.Stream()
    x = torch.ones(1024, 64, device="loom")
    side.wait_stream(torch.loom.default_stream())
    for row in x:
        row.add_(1)
    (block,) = [b for b in sanitized.memory.blocks.values() if b.address == x.data_ptr()]
    assert 0 < len(list(block.uses())) <= 128
    before = len(sanitized.memory.blocks)
    for size in range(1, 300):
        y = torch.ones(size, device="loom")
        side.wait_stream(torch.loom.default_stream())
        with torch.loom.stream(side):
            y.add_(1)
        torch.loom.default_stream().wait_stream(side)
        del y
    gc.collect()
    torch.ones(1, device="loom")
    assert len(sanitized.memory.blocks) <= before + 1
    assert sanitized.memory.num_freed_ranges < 50
    assert len(sanitized.syncs.recorded_sync_states) < 10
    torch.loom.synchronize()
    del x
    torch.ones(1, device="loom")
    assert sanitized.memory.num_freed_ranges <= 2


def test_a_finalizer_may_run_ops(sanitized) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.tensor = torch.ones(8, device="loom")

        def __del__(self) -> None:
            self.tensor.add_(1)

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            Cycle()
            torch.ones(8, device="loom") + 1
    finally:
        gc.set_threshold(*threshold)


def test_what_a_reader_of_the_tape_hears() -> None:
    heard: list[tuple[object, ...]] = []
    reader = _C.TapeReader(lambda *launch: heard.append(launch))
    side, event = torch.loom.Stream(), torch.loom.Event()
    reader.attach()
    try:
        with pytest.raises(ValueError, match="attached to the tape already"):
            reader.attach()
        x = torch.empty(4, 3, device="loom")
        x.t()[1:].add_(1)
        event.record()
        side.wait_event(event)
        address = x.data_ptr()
        host = torch.empty(4, 3)
        host.copy_(x)
        del x
    finally:
        reader.detach()
    with pytest.raises(ValueError, match="not attached to the tape"):
        reader.detach()
    allocate, kernel, copy = heard
    assert allocate[:4] == (_C.TapeReader.ALLOCATE, 0, 0, "allocate")
    assert allocate[5:] == (address, 48, False, False)
    assert kernel[0] == _C.TapeReader.KERNEL
    assert str(kernel[3]).startswith("aten::add_")
    assert kernel[4][0] == (address + 4, (2, 4), (1, 3), 4, True)  # type: ignore[index]
    assert copy[0] == _C.TapeReader.COPY
    assert copy[4] == ((address, (48,), (1,), 1, False),)
    assert copy[8] is True
    notes = reader.take_notes()
    kinds = [note[0] for note in notes]
    expected = ["CREATE_EVENT", "RECORD_EVENT", "WAIT_EVENT", "SYNCHRONIZE_STREAM", "FREE"]
    assert kinds == [getattr(_C.TapeReader, name) for name in expected]
    assert notes[0][3] == notes[1][3] == notes[2][3] != 0
    assert notes[4][4] == address
    assert reader.take_notes() == []


def test_what_a_reader_raises_leaves_the_launch() -> None:
    def refuse(*launch: object) -> None:
        if launch[0] == _C.TapeReader.KERNEL:
            raise KeyError(launch[3])

    x = torch.ones(4, device="loom")
    reader = _C.TapeReader(refuse)
    reader.attach()
    try:
        with pytest.raises(KeyError, match="aten::add_"):
            x.add_(1)
    finally:
        reader.detach()
    assert x.tolist() == [1.0] * 4


def test_streams_of_devices_are_apart() -> None:
    assert unpack_stream(pack_stream(1, 5)) == (1, 5)
    assert pack_stream(0, 5) == 5
    # What an allocator calls stream 5 of device 1, on another device.
    assert pack_stream(0, (1 + 1) << 32 | 5) == pack_stream(1, 5)


@pytest.mark.exercises(
    "torch.cuda._sanitizer.StreamSynchronizations",
)
def test_clocks() -> None:
    syncs = _sanitizer.StreamSynchronizations()
    syncs.update_seq_num(0, 1)
    syncs.update_seq_num(1, 2)
    assert not syncs.is_ordered_after(1, 1, 0)
    syncs.stream_wait_for_event(1, 7)
    assert not syncs.is_ordered_after(1, 1, 0)
    syncs.record_state(7, 0)
    syncs.stream_wait_for_event(1, 7)
    syncs.update_seq_num(0, 3)
    assert syncs.is_ordered_after(1, 1, 0)
    assert not syncs.is_ordered_after(1, 3, 0)
    syncs.record_state(8, 1)
    syncs.stream_wait_for_event(2, 8)
    assert syncs.is_ordered_after(2, 1, 0)
    assert syncs.is_ordered_after(2, 2, 1)
    syncs.all_streams_wait_for_event(8)
    assert syncs.is_ordered_after(3, 2, 1)
    syncs.all_streams_wait_for_stream(0)
    assert syncs.is_finished(3, 0)
    syncs.update_seq_num(pack_stream(1, 0), 4)
    syncs.update_seq_num(1, 5)
    syncs.sync_all_streams(0)
    assert syncs.is_finished(5, 1)
    assert not syncs.is_finished(4, pack_stream(1, 0))


def _bytes(operand: regions.Operand) -> set[int]:
    address, sizes, strides, item_bytes, _ = operand
    return {
        address + item_bytes * sum(i * s for i, s in zip(index, strides, strict=True)) + byte
        for index in itertools.product(*map(range, sizes))
        for byte in range(item_bytes)
    }


@pytest.mark.long
def test_overlap_is_exact() -> None:
    numbers = random.Random(0)
    both = [0, 0]
    for _ in range(4000):
        pair = []
        strides = [numbers.randint(0, 9) for _ in range(3)]
        for _ in range(2):
            if numbers.random() < 0.5:
                strides = [numbers.randint(0, 9) for _ in range(3)]
            dims = numbers.randint(0, 3)
            sizes = tuple(numbers.randint(1, 5) for _ in range(dims))
            item = numbers.choice((1, 2, 4))
            pair.append((numbers.randint(0, 40), sizes, tuple(strides[:dims]), item, False))
        left, right = pair
        expected = bool(_bytes(left) & _bytes(right))
        assert regions.overlap(left, right) == regions.overlap(right, left) == expected, pair
        both[expected] += 1
        start, end = min(_bytes(left)), max(_bytes(left)) + 1
        if regions.covers(left, start, end):
            assert len(_bytes(left)) == end - start
    assert min(both) > 500


def test_overlap_of_large_views_is_quick() -> None:
    rows, columns = 1 << 20, 1024
    column = (0, (rows,), (columns,), 4, True)
    assert not regions.overlap(column, (4, (rows, columns - 1), (columns, 1), 4, True))
    assert regions.overlap(column, (0, (rows, columns), (columns, 1), 4, True))
    assert not regions.overlap((0, (rows,), (2,), 4, True), (4, (rows,), (2,), 4, True))
    # Too long to find out: taken to be apart.
    assert not regions.overlap((0, (rows,), (6,), 4, True), (12, (rows,), (10,), 4, True))
