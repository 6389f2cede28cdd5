"""Memory history: PyTorch's own tools read what is recorded."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

import torch_loom.device as loom
from torch_loom.errors import InvalidDeviceError

MIB = 1 << 20
memory = loom.memory


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    gc.collect()  # what other tests left in cycles holds memory
    loom.set_device(0)
    loom.empty_cache()
    yield
    memory._record_memory_history(None)
    loom.empty_cache()


@pytest.fixture(autouse=True, scope="module")
def eager() -> None:
    """Memory is taken where a tensor is made."""
    if loom.get_device_properties(0).extra["memory_policy"] != "eager":
        pytest.skip("under the lazy policy memory is taken at first use")


def allocate_here() -> torch.Tensor:
    return torch.empty(30 * MIB, dtype=torch.uint8, device="loom")


def trace(snapshot: dict[str, Any], device: int = 0) -> list[tuple[str, int]]:
    return [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][device]]


@pytest.mark.long
@pytest.mark.exercises(
    "torch.cuda.memory._record_memory_history",
    "torch.cuda.memory._snapshot",
)
def test_actions_in_order() -> None:
    memory._record_memory_history(clear_history=True)
    tensor = allocate_here()
    address = tensor.data_ptr()
    del tensor
    loom.empty_cache()
    snapshot = memory._snapshot()
    assert trace(snapshot) == [
        ("segment_alloc", 30 * MIB),
        ("alloc", 30 * MIB),
        ("free_requested", 30 * MIB),
        ("free_completed", 30 * MIB),
        ("segment_free", 30 * MIB),
    ]
    entries = snapshot["device_traces"][0]
    assert {entry["addr"] for entry in entries} == {address}
    assert all(entry["stream"] == 0 for entry in entries)
    times = [entry["time_us"] for entry in entries]
    assert times == sorted(times)
    assert len(snapshot["device_traces"]) == loom.device_count()


def test_stacks_name_the_line() -> None:
    memory._record_memory_history(stacks="python", clear_history=True)
    tensor = allocate_here()
    snapshot = memory._snapshot()
    (segment,) = [s for s in snapshot["segments"] if s["address"] == tensor.data_ptr()]
    (block,) = segment["blocks"]
    assert block["state"] == "active_allocated"
    assert block["requested_size"] == block["size"] == 30 * MIB
    frames = block["frames"]
    assert frames[0]["name"] == "allocate_here"
    assert frames[0]["filename"].endswith("test_memory_history.py")
    assert frames[0]["line"] == allocate_here.__code__.co_firstlineno + 1
    assert frames[1]["name"] == "test_stacks_name_the_line"
    found = memory._allocation_traceback(tensor.data_ptr())
    assert found is not None
    assert found[0]["name"] == "allocate_here"
    del tensor
    entries = memory._snapshot()["device_traces"][0]
    (freed,) = [entry for entry in entries if entry["action"] == "free_requested"]
    assert freed["frames"][0]["name"] == "test_stacks_name_the_line"


def test_segment_keys() -> None:
    tensor = torch.empty(1000, dtype=torch.uint8, device="loom")
    snapshot = memory._snapshot()
    (segment,) = [s for s in snapshot["segments"] if s["address"] == tensor.data_ptr()]
    expected = {
        "device": 0,
        "total_size": 2 * MIB,
        "allocated_size": 1024,
        "active_size": 1024,
        "requested_size": 1000,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
    }
    assert {key: segment[key] for key in expected} == expected
    first, rest = segment["blocks"]
    assert first == {
        "address": tensor.data_ptr(),
        "size": 1024,
        "requested_size": 1000,
        "state": "active_allocated",
        "frames": [],
    }
    assert rest["state"] == "inactive"
    assert rest["address"] == tensor.data_ptr() + 1024
    assert snapshot["allocator_settings"]["expandable_segments"] is False
    assert snapshot["external_annotations"] == []
    assert loom.memory_snapshot() == snapshot["segments"]


@pytest.mark.long
def test_contexts() -> None:
    memory._record_memory_history(context="alloc", clear_history=True)
    tensor = allocate_here()
    del tensor
    memory._record_memory_history(context=None)
    allocate_here()
    entries = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
    assert ["frames" in entry for entry in entries] == [True, False]


def test_state_keeps_the_last_entry() -> None:
    memory._record_memory_history("state", stacks="python")
    tensor = allocate_here()
    snapshot = memory._snapshot()
    assert [action for action, _ in trace(snapshot)] == ["alloc"]
    (segment,) = [s for s in snapshot["segments"] if s["address"] == tensor.data_ptr()]
    assert segment["blocks"][0]["frames"][0]["name"] == "allocate_here"


def test_the_oldest_entries_go_first() -> None:
    memory._record_memory_history(max_entries=3, context=None, clear_history=True)
    for size in range(1, 5):
        torch.empty(size * 512, dtype=torch.uint8, device="loom")
    assert trace(memory._snapshot()) == [
        (action, 2048) for action in ("alloc", "free_requested", "free_completed")
    ]


def test_skipped_actions() -> None:
    memory._record_memory_history(
        context=None, clear_history=True, skip_actions=["free_completed", "snapshot"]
    )
    tensor = torch.empty(512, dtype=torch.uint8, device="loom")
    del tensor
    assert [action for action, _ in trace(memory._snapshot())] == ["segment_alloc", "alloc", "free_requested"]


def test_out_of_memory_is_recorded() -> None:
    memory._record_memory_history(context=None, clear_history=True)
    free_bytes, total_bytes = loom.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total_bytes + MIB, dtype=torch.uint8, device="loom")
    (entry,) = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
    assert entry["device_free"] == free_bytes
    assert entry["size"] == total_bytes + MIB
    assert "addr" not in entry


def test_a_snapshot_follows_its_own_history() -> None:
    memory._record_memory_history(context=None, clear_history=True)
    assert trace(memory._snapshot()) == []
    assert [action for action, _ in trace(memory._snapshot())] == ["snapshot"]


def test_where_memory_was_given_back() -> None:
    def give_back() -> None:
        loom.empty_cache()

    for context in ("alloc", "all"):
        memory._record_memory_history(context=context, stacks="python", clear_history=True)
        allocate_here()
        give_back()
        freed = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "segment_free"]
        names = {frame["name"] for entry in freed for frame in entry.get("frames", [])}
        assert ("give_back" in names) == (context == "all")
        assert ("allocate_here" in names) == (context == "alloc")


@pytest.mark.exercises(
    "torch.cuda.memory._get_memory_metadata",
    "torch.cuda.memory._set_memory_metadata",
)
def test_metadata() -> None:
    memory._record_memory_history(context=None, clear_history=True)
    memory._set_memory_metadata("step 3")
    assert memory._get_memory_metadata() == "step 3"
    torch.empty(512, dtype=torch.uint8, device="loom")
    memory._set_memory_metadata("")
    torch.empty(512, dtype=torch.uint8, device="loom")
    texts = [e["user_metadata"] for e in memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
    assert texts == ["step 3", ""]


def test_off_records_nothing() -> None:
    memory._record_memory_history(False)
    tensor = allocate_here()
    snapshot = memory._snapshot()
    assert snapshot["device_traces"][0] == []
    assert memory._allocation_traceback(tensor.data_ptr()) is None


@pytest.mark.long
@pytest.mark.exercises(
    "torch.cuda.memory._dump_snapshot",
)
def test_pytorchs_tools_read_it(tmp_path: Path) -> None:
    memory._record_memory_history(clear_history=True)
    first = allocate_here()
    before = memory._snapshot()
    second = torch.empty(1000, device="loom")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(loom.mem_get_info()[1] + MIB, dtype=torch.uint8, device="loom")
    del first
    loom.empty_cache()
    after = memory._snapshot()
    for page in (_memory_viz.trace_plot(after), _memory_viz.segment_plot(after)):
        assert "<script" in page
    # Flame graphs are drawn by a script that PyTorch downloads: its input is looked at instead.
    for text in (
        _memory_viz.segments(after, format_flamegraph=str),
        _memory_viz.memory(after, format_flamegraph=str),
        _memory_viz.compare(before["segments"], after["segments"], format_flamegraph=str),
    ):
        assert "stream_0" in text
    assert "allocate_here" in _memory_viz.memory(before, format_flamegraph=str)
    assert "30.0MiB" in _memory_viz.segsum(before)
    assert "OutOfMemoryError" in _memory_viz.trace(after)
    target = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(target)
    with target.open("rb") as file:
        loaded = pickle.load(file)
    assert loaded.keys() == after.keys()
    assert list(tmp_path.iterdir()) == [target]
    del second


def test_dump_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        memory._dump_snapshot(tmp_path / "missing" / "file")
    target = tmp_path / "directory"
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        memory._dump_snapshot(target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"enabled": "some"}, ValueError, "enabled must be one of None, 'state', 'all', got 'some'"),
        ({"context": "free"}, ValueError, "context must be one of"),
        ({"stacks": "c"}, ValueError, "stacks must be one of 'python', 'all', got 'c'"),
        ({"max_entries": -1}, ValueError, "max_entries must be 0 or more, got -1"),
        ({"max_entries": "9"}, TypeError, "max_entries must be an int, got str '9'"),
        ({"skip_actions": ["malloc"]}, ValueError, "skip_actions must be one of 'alloc', .* got 'malloc'"),
        ({"device": 9}, InvalidDeviceError, "Invalid device index 9"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        memory._record_memory_history(**arguments)


def test_dumping_follows_links_and_writes_to_what_is_no_file(tmp_path: Path) -> None:
    target, link = tmp_path / "target.pickle", tmp_path / "link.pickle"
    target.write_bytes(b"")
    link.symlink_to(target)
    memory._dump_snapshot(str(link))
    assert link.is_symlink()
    assert pickle.loads(target.read_bytes()).keys() == memory._snapshot().keys()
    with pytest.raises(OSError, match="No space left"):
        memory._dump_snapshot("/dev/full")
