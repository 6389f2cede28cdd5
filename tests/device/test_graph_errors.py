"""Graphs: what a capture refuses, and that the process is as usable after an error as before."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom

CaptureError = torch.AcceleratorError


@pytest.fixture(autouse=True)
def usable_afterwards() -> Iterator[None]:
    yield
    assert not loom.is_current_stream_capturing()
    loom.synchronize()
    for stream in (loom.default_stream(), loom.Stream()):
        with loom.stream(stream):
            x = torch.ones(4, device="loom")
            graph = loom.LoomGraph()
            assert (x + 1).sum().item() == 8
    with loom.graph(graph):
        x += 1
    graph.replay()
    assert x.sum().item() == 8


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device="loom")


@contextmanager
def failing_capture(graph: loom.LoomGraph, match: str, **options: Any) -> Iterator[None]:
    """Captures the body and expects the end of the capture to raise."""
    with pytest.raises(CaptureError, match=match), loom.graph(graph, **options):
        yield


def test_the_default_stream_cannot_be_captured() -> None:
    graph = loom.LoomGraph()
    with pytest.raises(RuntimeError, match=r"^LOOM graphs must be captured on a non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="before capture_begin"):
        graph.capture_end()


def test_a_stream_is_captured_once_at_a_time() -> None:
    stream, first, second = loom.Stream(), loom.LoomGraph(), loom.LoomGraph()
    x = ones(2)
    with loom.stream(stream):
        first.capture_begin()
        with pytest.raises(RuntimeError, match="capturing already"):
            first.capture_begin()
        with pytest.raises(CaptureError, match="captured already"):
            second.capture_begin()
        x += 1
        first.capture_end()
    first.replay()
    assert x.tolist() == [2.0, 2.0]


def test_bad_arguments() -> None:
    with pytest.raises(RuntimeError, match='"global", "thread_local" or "relaxed", got "all"'):
        loom.LoomGraph().capture_begin(capture_error_mode="all")
    with pytest.raises(TypeError, match="Expected a LoomGraph"):
        loom.graph(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Expected a torch\.Stream"):
        loom.graph(loom.LoomGraph(), stream=3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        loom.LoomGraph().replay()


UNSAFE: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "to the host": lambda x: x.cpu(),
    "from the host": lambda x: x.copy_(torch.zeros(4)),
    "strided from the host": lambda x: x[::2].copy_(torch.zeros(2, dtype=torch.int64)),
    "from pinned memory, waiting": lambda x: x.copy_(torch.zeros(4).pin_memory()),
    "synchronize device": lambda x: loom.synchronize(),
    "synchronize stream": lambda x: loom.current_stream().synchronize(),
    "query stream": lambda x: loom.current_stream().query(),
}


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("call", UNSAFE.values(), ids=list(UNSAFE))
def test_calls_that_wait_are_refused_and_end_the_capture(call: Callable[[Tensor], object], mode: str) -> None:
    x = ones(4)
    graph = loom.LoomGraph()
    with failing_capture(graph, "previous error during capture", capture_error_mode=mode):
        with pytest.raises(CaptureError, match="not permitted when stream is capturing"):
            call(x)
        with pytest.raises(CaptureError, match="previous error during capture"):
            x += 1
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda event: event.query(),
        lambda event: event.synchronize(),
        lambda event: event.elapsed_time(event),
    ],
)
def test_events_of_a_capture_cannot_be_asked(call: Callable[[torch.Event], object]) -> None:
    event = torch.Event("loom", enable_timing=True)
    with failing_capture(loom.LoomGraph(), "previous error during capture", capture_error_mode="relaxed"):
        event.record()
        with pytest.raises(CaptureError, match="event last recorded in a capturing stream"):
            call(event)
    assert event.query()


def test_data_dependent_ops_are_refused_by_name() -> None:
    x = ones(4)
    for call, name in (
        (lambda: x.nonzero(), "aten::nonzero"),
        (lambda: x[x > 0], "aten::index"),
        (lambda: torch.unique(x), "aten::_unique2"),
        (lambda: x.masked_select(x > 0), "aten::masked_select"),
    ):
        with (
            pytest.raises(RuntimeError, match=f"{name}.* cannot be captured by a graph"),
            loom.graph(loom.LoomGraph()),
        ):
            call()


def test_an_exception_in_the_body_goes_on_and_ends_the_capture() -> None:
    graph = loom.LoomGraph()
    x = ones(4)

    def fail() -> None:
        with loom.graph(graph):
            x.add_(1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    graph.replay()  # what was captured before it
    assert x.tolist() == [2.0] * 4
    graph.reset()
    with pytest.raises(RuntimeError, match="out of memory"), loom.graph(graph):
        torch.cat([x + 1, torch.empty(2**46, device="loom")])
    graph.reset()
    with loom.graph(graph):
        x += 1
    graph.replay()
    assert x.tolist() == [3.0] * 4


def test_an_error_of_the_capture_is_raised_at_its_end_with_the_first_as_context() -> None:
    x = ones(4)
    with (
        pytest.raises(CaptureError, match=r"^LOOM error: operation failed due to a previous error") as found,
        loom.graph(loom.LoomGraph()),
    ):
        x.sum().item()
    first = found.value.__context__
    assert isinstance(first, CaptureError)
    assert str(first).startswith("LOOM error: operation not permitted when stream is capturing")
    assert loom.current_stream() == loom.default_stream()


@pytest.mark.parametrize(
    ("mode", "elsewhere", "here"),
    [("global", True, True), ("thread_local", False, True), ("relaxed", False, False)],
)
def test_memory_for_streams_that_are_not_captured(mode: str, elsewhere: bool, here: bool) -> None:
    def allocate() -> None:
        torch.empty(64 << 20, device="loom:1", dtype=torch.uint8)

    loom.empty_cache()
    for is_refused, call in ((elsewhere, lambda: in_thread(allocate)), (here, allocate)):
        graph = loom.LoomGraph()
        with contextlib.ExitStack() as stack:
            if is_refused:
                stack.enter_context(pytest.raises(CaptureError, match="takes memory of the device"))
            with loom.graph(graph, capture_error_mode=mode):
                ones(4).add_(1)
                call()
        loom.empty_cache()


def test_end_on_another_stream_names_both() -> None:
    first, second, graph = loom.Stream(), loom.Stream(), loom.LoomGraph()
    with loom.stream(first):
        graph.capture_begin()
    with (
        loom.stream(second),
        pytest.raises(
            CaptureError,
            match=f"not ended in the same stream.*stream {first.stream_id} of.*stream {second.stream_id} of",
        ),
    ):
        graph.capture_end()
    assert not first.is_capturing()


def test_work_that_was_not_joined_is_named() -> None:
    main, side = loom.Stream(), loom.Stream()
    x, y = ones(2), ones(2)
    with failing_capture(loom.LoomGraph(), f"unjoined work.*stream {side.stream_id} of", stream=main):
        side.wait_stream(main)
        with loom.stream(side):
            y += 1
        x += 1
    assert not side.is_capturing()
    # A fork without work need not be joined.
    with loom.graph(loom.LoomGraph(), stream=main):
        x += 1
        side.wait_stream(main)


def test_a_capture_waits_for_no_work_outside_of_it() -> None:
    event = torch.Event("loom")
    event.record()
    x = ones(2)
    with failing_capture(loom.LoomGraph(), "previous error during capture.*uncaptured work"):
        x += 1
        with pytest.raises(CaptureError, match="dependency created on uncaptured work in another stream"):
            loom.current_stream().wait_event(event)


def test_the_default_stream_cannot_join() -> None:
    with failing_capture(loom.LoomGraph(), "previous error during capture"):
        event = loom.current_stream().record_event()
        with pytest.raises(CaptureError, match="legacy stream"):
            loom.default_stream().wait_event(event)


def test_two_captures_do_not_merge() -> None:
    streams = [loom.Stream(), loom.Stream()]
    graphs = [loom.LoomGraph(), loom.LoomGraph()]
    for stream, graph in zip(streams, graphs, strict=True):
        with loom.stream(stream):
            graph.capture_begin()
    event = streams[0].record_event()
    with pytest.raises(CaptureError, match="merge of separate capture sequences"):
        streams[1].wait_event(event)
    for stream, graph in zip(streams, graphs, strict=True):
        with loom.stream(stream), pytest.raises(CaptureError, match="previous error during capture"):
            graph.capture_end()


def test_a_replay_cannot_be_captured() -> None:
    x = ones(2)
    inner = loom.LoomGraph()
    with loom.graph(inner):
        x += 1
    with pytest.raises(CaptureError, match="the replay of a graph"), loom.graph(loom.LoomGraph()):
        inner.replay()
    inner.replay()
    assert x.tolist() == [2.0, 2.0]


def test_a_graph_that_is_dropped_while_it_captures_ends_the_capture() -> None:
    stream = loom.Stream()
    with loom.stream(stream):
        loom.LoomGraph().capture_begin()
        assert not stream.is_capturing()
        graph = loom.LoomGraph()
        graph.capture_begin()
        graph.reset()
        assert not stream.is_capturing()


def in_thread(body: Callable[[], object]) -> BaseException | None:
    """Runs `body` in a thread of its own and returns what it raised."""
    raised: list[BaseException | None] = [None]

    def run() -> None:
        try:
            body()
        except BaseException as error:
            raised[0] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0]


@pytest.mark.parametrize(
    ("mode", "is_refused"), [("global", True), ("thread_local", False), ("relaxed", False)]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda: ones(4).sum().item(),
        lambda: ones(4).add(1).cpu(),
        lambda: loom.synchronize(),
        lambda: torch.Stream("loom").synchronize(),
        lambda: torch.Stream("loom").query(),
        lambda: torch.Stream("loom").record_event().synchronize(),
    ],
)
def test_other_threads(call: Callable[[], object], mode: str, is_refused: bool) -> None:
    x = ones(4)
    graph, stream = loom.LoomGraph(), loom.Stream()
    with loom.stream(stream):
        graph.capture_begin(capture_error_mode=mode)
        x += 1
        error = in_thread(call)
        expected = pytest.raises(CaptureError, match="previous error during capture")
        with expected if is_refused else contextlib.nullcontext():
            graph.capture_end()
    assert isinstance(error, CaptureError) == is_refused, error
    if not is_refused:
        graph.replay()
        assert x.tolist() == [2.0] * 4


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_other_threads_may_submit_work(mode: str) -> None:
    graph = loom.LoomGraph()
    results: list[Tensor] = []

    def body() -> None:
        results.append((ones(4) + 1).pow(2))

    x = ones(4)
    with loom.graph(graph, capture_error_mode=mode):
        x += 1
        assert in_thread(body) is None
    assert results[0].tolist() == [4.0] * 4


def test_another_thread_cannot_end_a_capture_unless_relaxed() -> None:
    for mode in ("thread_local", "relaxed"):
        graph, stream = loom.LoomGraph(), loom.Stream()
        with loom.stream(stream):
            graph.capture_begin(capture_error_mode=mode)

        def end(graph: loom.LoomGraph = graph, stream: torch.Stream = stream) -> None:
            with loom.stream(stream):
                torch.ones(2, device="loom").add_(1)
                graph.capture_end()

        error = in_thread(end)
        assert (error is None) == (mode == "relaxed"), error
        assert not stream.is_capturing()


def test_threads_capture_at_once() -> None:
    tensors = [ones(64) for _ in range(4)]
    barrier = threading.Barrier(4)
    graphs = [loom.LoomGraph() for _ in tensors]
    errors = []

    def run(index: int) -> None:
        try:
            with loom.stream(torch.Stream("loom")):
                barrier.wait()
                graphs[index].capture_begin(capture_error_mode="thread_local")
                for _ in range(50):
                    tensors[index].add_(1).mul_(1)
                    tensors[index] + 1
                graphs[index].capture_end()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for graph in graphs:
        graph.replay()
    assert [tensor.unique().tolist() for tensor in tensors] == [[51.0]] * 4


def test_a_failure_in_a_replay_is_raised_by_who_waits() -> None:
    table, index = ones(4), torch.zeros(2, dtype=torch.long, device="loom")
    graph = loom.LoomGraph()
    with loom.graph(graph):
        picked = table.index_select(0, index)

    def replay_and_wait(stream: torch.Stream) -> None:
        with loom.stream(stream):
            graph.replay()
            stream.synchronize()

    index.fill_(9)
    for stream in (loom.default_stream(), loom.Stream()):
        with pytest.raises(IndexError, match=r"index_select.*test_graph_errors\.py"):
            replay_and_wait(stream)
    index.fill_(1)
    graph.replay()
    assert picked.tolist() == [1.0, 1.0]
