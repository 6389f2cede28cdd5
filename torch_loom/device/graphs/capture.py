"""Graphs: work captured on a stream once, and replayed without Python and without the allocator."""

from __future__ import annotations

import gc
from types import TracebackType
from typing import ClassVar

import torch

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device._core.first_use import _lazy_init
from torch_loom.device.devices import current_device, synchronize
from torch_loom.device.memory import empty_cache
from torch_loom.device.streams import Stream, StreamContext
from torch_loom.device.streams.events import _checked_stream
from torch_loom.errors import NotApplicableError


def is_current_stream_capturing() -> bool:
    """Return whether the current stream of the current device is being captured. Initialises no device."""
    return _C.is_current_stream_capturing()


def graph_pool_handle() -> tuple[int, int]:
    """Return the name of a new private memory pool, for the captures of graphs that are to share memory.

    Graphs may share memory when they are replayed in the order in which they were captured, and never at the
    same time.
    """
    return _C.graph_pool_handle()


class LoomGraph(_C.Graph):
    """Work captured on a stream, to be replayed.

    What is submitted between :meth:`capture_begin` and :meth:`capture_end` is kept and does not run. A replay
    runs it, at the same addresses: inputs are changed in place before it, results read after it. The memory
    that was taken during the capture belongs to the graph's pool until :meth:`reset`, and its contents change
    with each replay. Pinned host memory that captured copies use must be kept alive by the program.

    Args:
        keep_graph: if True, the graph is made ready by :meth:`instantiate` or the first replay, not by
            :meth:`capture_end`.
    """

    # How many captures this process has begun: annotations call a capture by its number.
    captures_begun: ClassVar[int] = 0

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream, which must not be the default stream.

        Streams that wait for an event of a captured stream are captured as well.

        Args:
            pool: where memory comes from, as :func:`graph_pool_handle` or :meth:`pool` of another graph named
                it; one of its own if None.
            capture_error_mode: which calls that wait for a device are refused meanwhile, and make the capture
                fail: those of every thread (``"global"``), of this thread (``"thread_local"``), or only what
                concerns captured streams and events (``"relaxed"``).

        Raises:
            RuntimeError: there is no such mode.
            torch.AcceleratorError: the stream is the default stream, or is being captured.
            RuntimeError: this object holds a graph already.
        """
        super().capture_begin(pool, capture_error_mode)
        LoomGraph.captures_begun += 1

    def capture_end(self) -> None:
        """End the capture; its stream must be current.

        Raises:
            torch.AcceleratorError: something went wrong since :meth:`capture_begin`, another stream is
                current, or work of streams that joined was not waited for. The capture has ended all the
                same, without a graph.
        """
        super().capture_end()

    def instantiate(self) -> None:
        """Make the captured graph ready for :meth:`replay`.

        Raises:
            RuntimeError: nothing was captured.
        """
        super().instantiate()

    def replay(self) -> None:
        """Run the captured work on the current stream, after earlier replays of this graph on any stream.

        Random numbers are drawn from where the registered generators are now.

        Raises:
            RuntimeError: nothing was captured.
        """
        super().replay()

    def reset(self) -> None:
        """Drop the captured graph, so that another can be captured.

        Memory of its pool that neither tensors nor other graphs use can be given back from then on.
        """
        super().reset()

    def pool(self) -> tuple[int, int]:
        """Return the name of this graph's memory pool, which other captures may share.

        Raises:
            RuntimeError: nothing was captured.
        """
        return super().pool()

    def enable_debug_mode(self) -> None:
        """Let :meth:`debug_dump` write."""
        super().enable_debug_mode()

    def debug_dump(self, path: str) -> None:
        """Write the commands of the graph and their dependencies to a file, in Graphviz's DOT language.

        Without :meth:`enable_debug_mode` nothing is written, with a warning.

        Raises:
            RuntimeError: nothing was captured, or the file could not be written.
        """
        super().debug_dump(path)

    def raw_cuda_graph(self) -> int:
        """CUDA's handle of the captured graph.

        Raises:
            NotApplicableError: always: these devices have no ``cudaGraph_t``.
        """
        raise NotApplicableError("raw_cuda_graph: these devices have no cudaGraph_t; see debug_dump()")

    def raw_cuda_graph_exec(self) -> int:
        """CUDA's handle of the graph that is made ready.

        Raises:
            NotApplicableError: always: these devices have no ``cudaGraphExec_t``.
        """
        raise NotApplicableError("raw_cuda_graph_exec: these devices have no cudaGraphExec_t; see replay()")

    def register_generator_state(self, state: torch.Generator) -> None:
        """Let ops of the next capture draw from a generator. Default generators need not be registered.

        Raises:
            TypeError: it is no generator.
            RuntimeError: it is one of another kind of device.
        """
        super().register_generator_state(state)


CUDAGraph = LoomGraph


class graph:  # noqa: N801 (CUDA's name)
    """Context manager that captures what is submitted inside of it.

    It waits for the device and empties its cache first. When the body raises, the capture ends all the same:
    the exception goes on, unless it has made the capture fail. Then the end of the capture raises, and the
    exception is its context.

    Args:
        cuda_graph: what captures.
        pool: as in :meth:`LoomGraph.capture_begin`.
        stream: the stream to capture; one of its own if None.
        capture_error_mode: as in :meth:`LoomGraph.capture_begin`.

    Raises:
        TypeError: ``cuda_graph`` is no graph or ``stream`` no stream.
        torch.AcceleratorError: as :meth:`LoomGraph.capture_end`.
    """

    # One for each device, by its index, and apart for the last dry run's: captures that share a pool share
    # memory when they share the stream.
    _own_streams: ClassVar[dict[int, torch.Stream]] = {}
    _dry_streams: ClassVar[tuple[int, dict[int, torch.Stream]]] = (0, {})

    def __init__(
        self,
        cuda_graph: LoomGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        if not isinstance(cuda_graph, _C.Graph):
            raise TypeError(f"Expected a LoomGraph, but got {cuda_graph!r} ({type(cuda_graph).__name__})")
        _lazy_init()
        if stream is None:
            index = current_device()
            streams = graph._streams_of(_C.world())
            if index not in streams:
                streams[index] = Stream(f"{DEVICE_TYPE}:{index}")
            stream = streams[index]
        self.capture_stream = _checked_stream(stream)
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_error_mode = capture_error_mode
        self._context = StreamContext(self.capture_stream)

    @staticmethod
    def _streams_of(world: int) -> dict[int, torch.Stream]:
        if world == 0:
            return graph._own_streams
        if graph._dry_streams[0] != world:
            graph._dry_streams = (world, {})
        return graph._dry_streams[1]

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        torch.accelerator.empty_host_cache()
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        try:
            self.cuda_graph.capture_end()
        finally:
            self._context.__exit__(exc_type, exc_value, exc_traceback)
