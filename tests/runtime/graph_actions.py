"""The actions about failing ops and graphs."""

from __future__ import annotations

from typing import Any

import torch

import torch_loom.device as loom

from .actions import allocate, empty_cache
from .allocator_model import ModelError
from .changes import CHANGES, action, change, change_model, operand_for
from .executor import DEVICES, STREAMS, Captured, Executor, Handle, Storage


@action
def fail(run: Executor, stream: int, index: int, waits: int) -> None:
    """Let an op fail on a side stream: raised once, what is queued behind it is dropped, and on it goes."""
    device, number = stream // STREAMS, stream
    place = torch.device("loom", device)
    run.stream(number).synchronize()
    run.clocks.synchronize(dict(run.clocks.of(number)))
    operands: list[Storage] = []
    for count, dtype in ((16, 1), (0, 1)):
        before = len(run.handles)
        allocate(run, number, count * 4 or 8, dtype, 99, 1)
        if len(run.handles) == before:
            return
        operands.append(run.handles[-1].storage)
    source, where = run.handles[-2], run.handles[-1]
    # A free block of the result's size, so that no segment is taken for it.
    allocate(run, number, 8, 1, 0, 1)
    if run.handles[-1] is where:
        return
    run.drop(run.handles[-1], 2)
    victim = run.pick(index, device)
    assert victim is not None
    run.use(number, 0, reads=[source.storage, where.storage], writes=[victim.storage])
    raised = 0
    result = None
    count = loom.memory_stats(device)["allocation.all.allocated"]
    with run.stream(number):
        try:
            result = torch.index_select(source.tensor, 0, where.tensor)
            victim.tensor.add_(1)
            victim.tensor.add_(1)
            _wait(run, number, waits, place)
        except IndexError as error:
            raised = 1
            if "index out of range" not in str(error):
                raise ModelError(f"another failure than expected: {error}") from error
        del result
        _wait(run, number, waits + 1, place)
    if not raised:
        raise ModelError("the failure of a queued op was not raised by the next wait")
    run.clocks.synchronize(dict(run.clocks.of(number)))
    # A result is made before the op runs where its shape is known from an earlier call.
    if loom.memory_stats(device)["allocation.all.allocated"] != count:
        run.ledgers[device].passed(8)


def _wait(run: Executor, stream: int, how: int, device: torch.device) -> None:
    if how % 3 == 0:
        run.stream(stream).synchronize()
    elif how % 3 == 1:
        run.stream(stream).record_event().synchronize()
    else:
        loom.synchronize(device)


@action
def capture(run: Executor, stream: int, picks: list[list[int]]) -> None:
    """Capture changes of tensors, one with a temporary from the graph's pool."""
    device, number = stream // STREAMS, stream
    changes: list[tuple[str, Handle, Any]] = []
    for index, kind, other, value in picks:
        handle = run.pick(index, device)
        operand = None if handle is None else operand_for(run, CHANGES[kind], handle, other, value)
        if handle is None or operand is None:
            continue
        changes.append((CHANGES[kind], handle, operand))
    if not changes or len(run.graphs) >= 3:
        return
    for each in range(DEVICES):
        empty_cache(run, each)
    graph, pool = loom.CUDAGraph(), loom.graph_pool_handle()
    ledger = run.ledgers[device]
    if ledger.model is not None:
        ledger.model.pools_in_use.add(pool)
    captured = Captured(graph, device, changes, pool)
    run.graphs.append(captured)
    with loom.device(device):
        try:
            with loom.graph(graph, pool=pool, stream=run.stream(number)):
                _capture_changes(run, captured, number)
        except torch.OutOfMemoryError:
            run.drop_graph(captured)
    run.synchronize_device(device)


def _capture_changes(run: Executor, captured: Captured, stream: int) -> None:
    ledger = run.ledgers[captured.device]
    for kind, handle, operand in captured.changes:
        if kind != "copy_":
            change(kind, handle.tensor, operand)
            continue
        size = operand.array.nbytes
        try:
            temporary = operand.tensor + 0
        except torch.OutOfMemoryError:
            run.ran_out(stream, size, captured.pool)
            raise
        address = temporary.untyped_storage().data_ptr()
        ledger.allocated(address, size, stream, captured.pool)
        handle.tensor.copy_(temporary)
        del temporary
        ledger.freed(address)


@action
def replay(run: Executor, index: int, stream: int, how: int) -> None:
    """Replay a graph on any stream of its device."""
    if not run.graphs:
        return
    captured = run.graphs[index % len(run.graphs)]
    number = captured.device * STREAMS + stream % STREAMS
    touched = {id(each.storage): each.storage for _, each, _ in captured.changes}
    for _, _, value in captured.changes:
        if isinstance(value, Handle):
            touched[id(value.storage)] = value.storage
    run.use(number, how, reads=[], writes=list(touched.values()))
    with run.stream(number):
        captured.graph.replay()
    for kind, handle, value in captured.changes:
        change_model(kind, handle.array, value)


@action
def forget_graph(run: Executor, index: int) -> None:
    """Reset a graph, whose replays may be under way."""
    if run.graphs:
        run.drop_graph(run.graphs[index % len(run.graphs)])
