"""Pictures and tables of what memory is used for, and the private names of torch.cuda.memory."""

from __future__ import annotations

import stat
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom
from torch_loom.device import _memory_viz
from torch_loom.device.memory import flamegraph

PROGRAMS = Path(__file__).parent / "programs" / "memory_viz"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    loom.set_device(0)
    loom.empty_cache()
    yield
    loom.memory._record_memory_history(None)
    loom.empty_cache()


def make_a_tensor() -> torch.Tensor:
    tensor = torch.zeros(30 * MIB, dtype=torch.uint8, device="loom")
    tensor.data_ptr()
    return tensor


def snapshot_with_history() -> tuple[dict[str, Any], torch.Tensor]:
    loom.memory._record_memory_history()
    make_a_tensor()
    kept = make_a_tensor()
    return loom.memory._snapshot(), kept


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]


@pytest.mark.exercises(
    "torch.cuda._memory_viz.memory",
    "torch.cuda._memory_viz.segments",
    "torch.cuda._memory_viz.compare",
)
def test_flame_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    before = loom.memory._snapshot()
    after, kept = snapshot_with_history()
    for picture in (_memory_viz.memory(after), _memory_viz.segments(after)):
        assert any("make_a_tensor" in title and "31,457,280 bytes" in title for title in titles(picture))
    difference = titles(_memory_viz.compare(before["segments"], after["segments"]))
    assert any(title.startswith("only_after (") for title in difference)
    assert not any(title.startswith("only_before (") for title in difference)
    assert f"only_after = [{kept.data_ptr()}]" in capsys.readouterr().out
    assert "make_a_tensor" in _memory_viz.memory(after, format_flamegraph=str)


@pytest.mark.exercises("torch.cuda._memory_viz.format_flamegraph")
def test_flame_graph_of_lines(tmp_path: Path) -> None:
    svg = _memory_viz.format_flamegraph("a;b 30\na;<c&d> 10\n")
    assert titles(svg)[0] == "all (40 bytes)"
    assert set(titles(svg)) == {"all (40 bytes)", "a (40 bytes)", "b (30 bytes)", "<c&d> (10 bytes)"}
    widths = {
        rectangle.get("width") for rectangle in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    }
    assert widths == {"1200.0", "900.0", "300.0"}
    assert titles(_memory_viz.format_flamegraph("")) == []
    deep = ";".join(f"f{number}" for number in range(5000))
    assert len(titles(flamegraph.render(f"{deep} 7"))) == 5001
    with pytest.raises(ValueError, match="frames joined by"):
        _memory_viz.format_flamegraph("no size")
    script = tmp_path / "flamegraph.pl"
    with pytest.raises(FileNotFoundError, match=r"flamegraph\.pl"):
        _memory_viz.format_flamegraph("a 1", script)
    script.write_text('#!/bin/sh\necho "$@"; cat\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert _memory_viz.format_flamegraph("a 1", script) == "--countname bytes\na 1"


@pytest.mark.exercises(
    "torch.cuda._memory_viz.segsum",
    "torch.cuda._memory_viz.trace",
    "torch.cuda._memory_viz.trace_plot",
    "torch.cuda._memory_viz.segment_plot",
    "torch.cuda._memory_viz.calc_active",
    "torch.cuda._memory_viz.filter_alloc_free_pairs",
    "torch.cuda._memory_viz.Bytes",
)
def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sum(map(_memory_viz.calc_active, loom.memory_snapshot()))
    snapshot, kept = snapshot_with_history()
    assert "30.0MiB" in _memory_viz.segsum(snapshot)
    assert "[0:30.0MiB]" in _memory_viz.trace(snapshot)
    assert sum(map(_memory_viz.calc_active, snapshot["segments"])) == before + kept.nbytes
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert page.lstrip().startswith("<!DOCTYPE html>")
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions.count("alloc") == 2
    paired = _memory_viz.filter_alloc_free_pairs(snapshot)
    assert [entry["action"] for entry in paired["device_traces"][0]].count("alloc") == 1
    total = _memory_viz.Bytes(MIB) + MIB
    assert (total.value, repr(total)) == (2 * MIB, "2.0MiB")


@pytest.mark.exercises("torch.cuda._memory_viz.profile_plot")
def test_profile_plot() -> None:
    with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        make_a_tensor().sum().item()
    assert "<!DOCTYPE html>" in _memory_viz.profile_plot(profile)


@pytest.mark.exercises(
    "torch.cuda.memory._save_memory_usage",
    "torch.cuda.memory._save_segment_usage",
)
def test_pictures_in_files(tmp_path: Path) -> None:
    snapshot, kept = snapshot_with_history()
    for number, save in enumerate((loom.memory._save_memory_usage, loom.memory._save_segment_usage)):
        given, present = tmp_path / f"given{number}.svg", tmp_path / f"present{number}.svg"
        save(given, snapshot)
        save(str(present))
        for file in (given, present):
            assert any("make_a_tensor" in title for title in titles(file.read_text()))
        with pytest.raises(FileNotFoundError):
            save(tmp_path / "no" / "such.svg")
    assert any(str(kept.data_ptr()) in title for title in titles((tmp_path / "given1.svg").read_text()))


@pytest.mark.exercises("torch.cuda.memory._host_allocator")
def test_host_allocator() -> None:
    address = loom.memory._host_allocator()
    before = loom.host_memory_stats()["active_requests.current"]
    storage = torch.UntypedStorage(1000, allocator=address)  # type: ignore[call-arg]
    assert torch.empty(0, dtype=torch.uint8).set_(storage).is_pinned()
    assert loom.host_memory_stats()["active_requests.current"] == before + 1
    assert loom.memory._host_allocator() == address


@pytest.mark.exercises("torch.cuda.memory._free_mutex")
def test_free_mutex() -> None:
    """No other thread gives memory back within the block; its own does."""
    before = loom.memory_reserved()
    make_a_tensor()
    reserved = loom.memory_reserved()
    assert reserved >= before + 30 * MIB
    with loom.memory._free_mutex():
        other = threading.Thread(target=loom.empty_cache)
        other.start()
        other.join(0.05)
        assert other.is_alive()
        assert loom.memory_reserved() == reserved
        x = torch.ones(100, device="loom")
        assert x.sum().item() == 100
        with loom.memory._free_mutex():
            loom.empty_cache()
    other.join()
    assert loom.memory_reserved() <= before + 2 * MIB  # of x


@pytest.mark.exercises("torch.cuda.memory._set_allocator_settings")
def test_allocator_settings(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "allocator_settings.py")


@pytest.mark.exercises("torch.cuda.memory.is_initialized")
def test_is_initialized() -> None:
    loom.init()
    assert loom.memory.is_initialized() is True
    assert loom.memory.is_initialized is loom.is_initialized
