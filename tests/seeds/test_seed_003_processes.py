"""Seed 003: tensors and events that other processes use. Keys as in seed_003.txt."""

from __future__ import annotations

import gc
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

import torch_loom.device as loom

TIMEOUT_S = 60
MIB = 1 << 20


def _expect(connection: Connection, word: str) -> None:
    assert connection.poll(TIMEOUT_S), f"the other process did not say {word!r}"
    assert connection.recv() == word


def _consumer(connection: Connection, queue: torch.multiprocessing.Queue, handle: bytes) -> None:  # type: ignore[type-arg]
    tensor = queue.get(timeout=TIMEOUT_S)
    event = loom.Event.from_ipc_handle(tensor.device, handle)
    event.synchronize()
    assert event.query()
    assert event.device == tensor.device == torch.device("loom:1")
    tensor.add_(1)
    loom.synchronize(1)
    connection.send("added")
    _expect(connection, "drop it")
    del tensor
    gc.collect()
    connection.send("dropped")
    _expect(connection, "end")


def _shared_files() -> set[str]:
    """What of /dev/shm this process has open or mapped."""
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    shared = [path for path in (*opened, *mapped) if path.startswith("/dev/shm/")]
    return {path for path in shared if "/sem." not in path}  # those are the queue's


@pytest.mark.slow
@pytest.mark.seed(2, "ipc_collect")
@pytest.mark.seed(3, "ipc_collect/1", "ipc_collect/2", "ipc_collect/3", "ipc_collect/4")
@pytest.mark.seed(3, "Event.ipc_handle/1", "Event.ipc_handle/2", "Event.from_ipc_handle/1")
@pytest.mark.exercises("torch.cuda.ipc_collect", "torch.cuda.Event.ipc_handle")
@pytest.mark.exercises("torch.cuda.Event.from_ipc_handle")
def test_a_tensor_and_an_event_in_another_process() -> None:
    loom.empty_cache(1)
    files, allocated = _shared_files(), loom.memory_allocated(1)
    event = loom.Event(interprocess=True)
    with loom.device(1):
        handle = event.ipc_handle()
    assert event.device == torch.device("loom:1")  # not recorded: the current device
    tensor = torch.ones(4 * MIB, dtype=torch.uint8, device="loom:1")
    event.record(loom.current_stream(1))
    spawn = torch.multiprocessing.get_context("spawn")
    queue, (ours, theirs) = spawn.Queue(), spawn.Pipe()
    process = spawn.Process(target=_consumer, args=(theirs, queue, handle), daemon=True)
    process.start()
    try:
        queue.put(tensor)
        _expect(ours, "added")
        assert tensor.eq(2).all()
        del tensor
        loom.ipc_collect()
        assert loom.memory_allocated(1) == allocated + 4 * MIB  # the other process still uses it
        ours.send("drop it")
        _expect(ours, "dropped")
        loom.ipc_collect()
        assert loom.memory_allocated(1) == allocated
        ours.send("end")
        process.join(TIMEOUT_S)
        assert process.exitcode == 0
    finally:
        process.kill()
        queue.close()
    del event
    loom.empty_cache(1)
    loom.ipc_collect()
    assert _shared_files() <= files
