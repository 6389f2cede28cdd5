"""Graphs: what a replay computes, where its memory comes from, and which random numbers it draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from captured_graph import captured, ones

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "graphs"

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import PythonRunner

MIB = 2**20


@pytest.fixture(autouse=True)
def no_capture_left() -> Iterator[None]:
    yield
    assert not loom.is_current_stream_capturing()
    loom.synchronize()


def test_replay_runs_what_was_captured_and_capture_runs_nothing() -> None:
    x = ones(8)
    graph = captured(lambda: x.add_(1))
    assert x.tolist() == [1.0] * 8
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [4.0] * 8


def test_results_are_read_from_where_they_were_captured() -> None:
    x = ones(4, 4)
    graph = loom.CUDAGraph()
    with loom.graph(graph):
        y = (x @ x).relu().sum(dim=1)
    for value in (1.0, 2.0, -3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [4 * 4 * value * value] * 4


def test_on_a_stream_of_ones_own() -> None:
    stream = loom.Stream()
    x = ones(1000)
    graph = loom.CUDAGraph()
    stream.wait_stream(loom.current_stream())
    with loom.stream(stream):
        graph.capture_begin()
        assert loom.is_current_stream_capturing()
        assert torch.accelerator.current_stream().is_capturing()
        y = x.mul(2)
        y = y.mul(3)
        graph.capture_end()
    assert not loom.is_current_stream_capturing()
    loom.current_stream().wait_stream(stream)
    graph.replay()
    assert y.sum().item() == 6000


def test_replay_on_side_streams_is_one_at_a_time() -> None:
    x = ones(100_000)
    graph = captured(lambda: [x.add_(1) for _ in range(5)])
    streams = [loom.Stream() for _ in range(3)]
    for round_ in range(10):
        with loom.stream(streams[round_ % 3]):
            graph.replay()
    loom.synchronize()
    assert torch.equal(x.cpu(), torch.full((100_000,), 51.0))


def test_replay_is_in_stream_order() -> None:
    stream = loom.Stream()
    x, y = ones(1000), ones(1000)
    graph = captured(lambda: y.copy_(x))
    stream.wait_stream(loom.current_stream())
    with loom.stream(stream):
        for value in range(20):
            x.fill_(value)
            graph.replay()
            x.fill_(-1)
    stream.synchronize()
    assert y.unique().tolist() == [19.0]


def test_fork_and_join() -> None:
    main, side = loom.Stream(), loom.Stream()
    x = ones(64)
    graph = loom.LoomGraph()
    with loom.graph(graph, stream=main):
        y = x + 1
        side.wait_stream(main)
        with loom.stream(side):
            assert loom.is_current_stream_capturing()
            left = y * 2
        right = y * 3
        main.wait_stream(side)
        z = left + right
    assert not side.is_capturing()
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert z.unique().tolist() == [(value + 1) * 5]


def test_fork_to_another_device_and_back() -> None:
    main, side = loom.Stream(), torch.Stream("loom:1")
    x, y = ones(16), torch.zeros(16, device="loom:1")
    graph = loom.LoomGraph()
    with loom.graph(graph, stream=main):
        side.wait_stream(main)
        with loom.stream(side):
            y += 1
            z = y * 2
        main.wait_stream(side)
        x += 1
    graph.replay()
    graph.replay()
    assert x.unique().tolist() == [3.0]
    assert z.unique().tolist() == [4.0]


def test_two_captures_at_once_are_two_graphs() -> None:
    streams = [loom.Stream(), loom.Stream()]
    graphs = [loom.LoomGraph(), loom.LoomGraph()]
    x, y = ones(4), ones(4)
    for stream, graph in zip(streams, graphs, strict=True):
        with loom.stream(stream):
            graph.capture_begin()
    for stream, tensor in zip(streams, (x, y), strict=True):
        with loom.stream(stream):
            tensor.add_(1)
    for stream, graph in zip(streams, graphs, strict=True):
        with loom.stream(stream):
            graph.capture_end()
    assert graphs[0].pool() != graphs[1].pool()
    graphs[1].replay()
    assert (x.sum().item(), y.sum().item()) == (4.0, 8.0)


def test_copies_and_fills_are_captured() -> None:
    source = torch.arange(512, dtype=torch.float32).pin_memory()
    target = torch.zeros(512).pin_memory()
    x, y = torch.zeros(512, device="loom"), ones(512)

    def body() -> None:
        x.copy_(source, non_blocking=True)
        y.copy_(x)
        y.add_(1)
        target.copy_(y, non_blocking=True)
        x.zero_()

    graph = captured(body)
    assert target.sum() == 0
    graph.replay()
    loom.synchronize()
    assert torch.equal(target, source + 1)
    source.fill_(7)
    graph.replay()
    loom.synchronize()
    assert target.unique().tolist() == [8.0]
    assert x.sum().item() == 0


@pytest.mark.slow
def test_ops_first_seen_in_a_capture(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "ops_first_seen_in_a_capture.py")


def test_host_scalars_are_read_at_the_capture() -> None:
    x, factor = ones(4), torch.tensor(3.0)
    graph = loom.LoomGraph()
    with loom.graph(graph):
        y = x * factor
    factor.fill_(100.0)
    graph.replay()
    assert y.tolist() == [3.0] * 4


def test_reset_and_capture_again() -> None:
    x = ones(4)
    graph = loom.LoomGraph()
    for step in range(3):
        with loom.graph(graph):
            y = x + step
        with pytest.raises(RuntimeError, match="already owns a captured graph"), loom.graph(graph):
            pass
        graph.replay()
        assert y.tolist() == [1.0 + step] * 4
        graph.reset()
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            graph.replay()
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            graph.pool()


def test_reset_while_replays_are_under_way() -> None:
    stream = loom.Stream()
    x = torch.zeros(1 << 20, device="loom")
    for _ in range(5):
        graph = captured(lambda: [x.add_(1) for _ in range(10)])
        with loom.stream(stream):
            for _ in range(4):
                graph.replay()
        graph.reset()
    loom.synchronize()
    assert x.unique().tolist() == [200.0]


def test_keep_graph_waits_for_instantiate() -> None:
    x = ones(4)
    graph = loom.LoomGraph(keep_graph=True)
    with pytest.raises(RuntimeError, match="needs a captured graph"):
        graph.instantiate()
    with loom.graph(graph):
        x += 1
    graph.instantiate()
    graph.replay()
    graph.instantiate()
    graph.replay()
    assert x.tolist() == [3.0] * 4


def test_debug_dump_is_a_drawing_of_the_nodes(tmp_path: Path) -> None:
    graph = loom.LoomGraph()
    x = ones(4)
    with loom.graph(graph):
        (x + 1).mul_(2).zero_()
    with pytest.warns(UserWarning, match="not enabled"):
        graph.debug_dump(str(tmp_path / "none.dot"))
    assert not list(tmp_path.iterdir())
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["graph.dot"]
    assert text.startswith("digraph")
    assert "aten::add" in text
    assert "aten::mul_" in text
    assert "n0 -> n1" in text
    assert "reads" in text
    with pytest.raises(RuntimeError, match="could not write"):
        graph.debug_dump(str(tmp_path / "no" / "folder.dot"))


def test_an_empty_graph_warns_and_replays() -> None:
    graph = loom.LoomGraph()
    with pytest.warns(UserWarning, match="The LOOM Graph is empty"), loom.graph(graph):
        pass
    graph.replay()


def test_accelerator_graph() -> None:
    x = ones(16)
    stream = torch.Stream("loom")
    graph = torch.accelerator.Graph(capture_error_mode="thread_local")
    with stream, graph:
        x += 1
    graph.replay()
    graph.replay()
    assert x.unique().tolist() == [3.0]
    second = torch.accelerator.Graph(pool=graph.pool())
    with stream, second:
        y = x * 2
    second.replay()
    assert y.unique().tolist() == [6.0]
    graph.reset()


@pytest.mark.long
def test_accelerator_graph_under_another_name(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "accelerator_graph_under_another_name.py", {"TORCH_LOOM_DEVICE_NAME": "rbln"})


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["blocking", "chaos"])
def test_every_launch_mode_computes_the_same(fork_loom: PythonRunner, launch: str) -> None:
    plain = fork_loom(PROGRAMS / "every_launch_mode_computes_the_same.py").stdout
    assert (
        fork_loom(PROGRAMS / "every_launch_mode_computes_the_same.py", {"TORCH_LOOM_LAUNCH": launch}).stdout
        == plain
    )


def test_a_view_that_no_op_has_seen_is_captured() -> None:
    x = torch.ones(4096, device="loom").add(1)
    view = x[8:20]
    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        view.sub_(0.5)
    graph.replay()
    graph.replay()
    assert view.tolist() == [1.0] * 12
    assert x.sum().item() == 2 * 4096 - 12
