"""Tensors, storages and events between processes."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import ipc_peer
import pytest
import torch
from ipc_peer import Peer

from torch_loom import _C
from torch_loom.errors import SharingError

loom: Any = torch.loom  # type: ignore[attr-defined]
MIB = 1 << 20


@pytest.fixture(scope="module")
def process() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.end()


@pytest.fixture
def peer(process: Peer) -> Iterator[Peer]:
    """The process, which holds nothing at the end."""
    yield process
    process(ipc_peer.drop)
    gc.collect()
    loom.ipc_collect()


def dumps(value: object) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def loads(data: bytes) -> Any:
    return ForkingPickler.loads(data)


def kinds() -> dict[str, torch.Tensor]:
    x = torch.arange(24.0, device="loom").reshape(4, 6)
    z = torch.complex(x, x + 1)
    return {
        "plain": x,
        "transposed": x.t(),
        "view": x[1:, ::2],
        "scalar": x.sum(),
        "bfloat16": x.bfloat16(),
        "bool": x > 3,
        "int8": x.to(torch.int8),
        "conj": z.conj(),
        "neg": z.conj().imag,
        "leaf": x.clone().requires_grad_(),
        "conj leaf": z.conj().detach().requires_grad_(),
        "parameter": torch.nn.Parameter(x.clone()),
        "frozen": torch.nn.Parameter(x.clone(), requires_grad=False),
        "empty": x[:, :0],
        "second device": torch.ones(3, device="loom:1") if loom.device_count() > 1 else x,
    }


# Not kinds() itself: its tensors would live as long as the tests.
KINDS = (
    "plain",
    "transposed",
    "view",
    "scalar",
    "bfloat16",
    "bool",
    "int8",
    "conj",
    "neg",
    "leaf",
    "conj leaf",
    "parameter",
    "frozen",
    "empty",
    "second device",
)


def test_kinds_are_all_named() -> None:
    assert tuple(kinds()) == KINDS


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives(peer: Peer, kind: str) -> None:
    tensor = kinds()[kind]
    assert peer(ipc_peer.facts, tensor) == ipc_peer.facts(tensor)


@pytest.mark.long
def test_both_see_the_same_memory(peer: Peer) -> None:
    x = torch.zeros(4, device="loom")
    before = x.data_ptr()
    peer(ipc_peer.keep, "x", x)
    assert peer(ipc_peer.add, "x", 1) == [1, 1, 1, 1]
    assert x.tolist() == [1, 1, 1, 1]
    x.mul_(5)
    assert peer(ipc_peer.add, "x", 0) == [5, 5, 5, 5]
    assert x.data_ptr() == before
    theirs = peer(ipc_peer.make, "y", 3)
    theirs[1] = 7
    assert peer(ipc_peer.add, "y", 0) == [0, 7, 2]


@pytest.mark.long
def test_one_storage_however_often_it_is_received(peer: Peer) -> None:
    x = torch.arange(6.0, device="loom")
    assert peer(ipc_peer.same_storage, x, x[2:])
    peer(ipc_peer.keep, "x", x)
    assert peer(ipc_peer.same_as_kept, "x", x.view(2, 3))
    assert not peer(ipc_peer.same_as_kept, "x", x.clone())
    # Back in the process that sent it.
    again = loads(dumps(x))
    assert ipc_peer.same_storage(x, again)


def test_storages(peer: Peer) -> None:
    x = torch.arange(4, dtype=torch.uint8, device="loom")
    for storage in (x.untyped_storage(), x._typed_storage()):
        assert peer(ipc_peer.fill_storage, storage, 3) == 4
        assert x.tolist() == [3, 3, 3, 3]
        x.zero_()
    assert loads(dumps(torch.UntypedStorage(0, device="loom"))).nbytes() == 0
    assert x.is_shared()
    assert x.untyped_storage().is_shared()
    assert x.share_memory_() is x
    assert not torch.ones(1).is_shared()


def test_sparse_tensors_travel_by_their_parts(peer: Peer) -> None:
    assert peer(ipc_peer.facts_of_dense, torch.eye(3, device="loom").to_sparse()) == torch.eye(3).tolist()


def test_the_contents_are_complete_when_it_is_sent(peer: Peer) -> None:
    stream = loom.Stream()
    with loom.stream(stream):
        x = torch.ones(400, 400, device="loom")
        for _ in range(5):
            x = (x @ x) / 400
    peer(ipc_peer.keep, "x", x)
    assert peer(ipc_peer.add, "x", 0) == x.tolist()


@pytest.mark.exercises("torch.cuda.ipc_collect")
def test_what_was_sent_is_kept_while_another_process_holds_it(peer: Peer) -> None:
    before = loom.memory_allocated()
    x = torch.ones(MIB, device="loom")
    peer(ipc_peer.keep, "x", x)
    peer(ipc_peer.keep, "y", x)
    theirs = peer(ipc_peer.figures)[0]
    del x
    gc.collect()
    loom.ipc_collect()
    assert loom.memory_allocated() == before + 4 * MIB
    other = torch.zeros(MIB, device="loom")
    peer(ipc_peer.drop, "x")
    loom.ipc_collect()
    assert loom.memory_allocated() == before + 8 * MIB
    assert peer(ipc_peer.sum_of, "y") == MIB
    assert theirs == 0, "what was received does not count as allocated"
    peer(ipc_peer.drop, "y")
    loom.ipc_collect()
    assert loom.memory_allocated() == before + 4 * MIB
    assert other.sum().item() == 0


def test_a_message_holds_what_it_names(peer: Peer) -> None:
    before = loom.memory_allocated()
    message = dumps(torch.full((MIB,), 2.0, device="loom"))
    loom.ipc_collect()
    assert loom.memory_allocated() == before + 4 * MIB
    again = loads(message)
    assert again.sum().item() == 2 * MIB
    with pytest.raises(SharingError, match="received before"):
        loads(message)
    del again
    loom.ipc_collect()
    assert loom.memory_allocated() == before


def test_memory_kept_for_others_is_found_before_it_runs_out(peer: Peer) -> None:
    peer(ipc_peer.keep, "x", torch.ones(8 * MIB, device="loom"))
    gc.collect()
    total = loom.mem_get_info()[1]
    limit = (loom.memory_reserved() + 4 * MIB) / total
    peer(ipc_peer.drop)
    loom.set_per_process_memory_fraction(limit)
    try:
        assert torch.zeros(8 * MIB, device="loom").sum().item() == 0
    finally:
        loom.set_per_process_memory_fraction(1.0)


def test_what_was_received_is_not_sent_on_nor_resized(peer: Peer) -> None:
    x = torch.ones(3, device="loom")
    peer(ipc_peer.keep, "x", x)
    assert "SharingError: memory that was received" in peer(ipc_peer.error_of, "pickle", "x")
    assert "resize" in peer(ipc_peer.error_of, "resize", "x")
    assert x.tolist() == [1, 1, 1]


def test_non_leaf_tensors_are_refused_as_everywhere() -> None:
    x = torch.ones(2, device="loom", requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        dumps(x * 2)


def test_handles_are_not_trusted() -> None:
    x = torch.ones(1000, device="loom")
    handle = _C.ipc_send(x.untyped_storage())
    for position in range(len(handle)):
        damaged = bytearray(handle)
        damaged[position] ^= 0x41
        with pytest.raises(SharingError):
            _C.ipc_receive(bytes(damaged))
    for bad in (b"", b"x" * len(handle), handle[:-1], handle + b"x"):
        with pytest.raises(SharingError, match="no handle of shared device memory"):
            _C.ipc_receive(bad)
    assert _C.ipc_receive(handle).data_ptr() == x.data_ptr()
    event = loom.Event(interprocess=True)
    event.record()
    handle = event.ipc_handle()
    for position in range(len(handle)):
        damaged = bytearray(handle)
        damaged[position] ^= 0x41
        with pytest.raises(SharingError):
            loom.Event.from_ipc_handle("loom", bytes(damaged))
    with pytest.raises(SharingError, match="no handle of an event"):
        loom.Event.from_ipc_handle("loom", b"")


def test_a_damaged_handle_that_names_the_same_file() -> None:
    """A thread's number finds the files of its process as well: damage may name what was meant."""
    event = loom.Event(interprocess=True)
    event.record()
    handle = event.ipc_handle()
    end = threading.Event()
    numbers: list[int] = []
    arrived = threading.Barrier(2, timeout=60)

    def live() -> None:
        numbers.append(threading.get_native_id())
        arrived.wait()
        end.wait(60)

    thread = threading.Thread(target=live)
    thread.start()
    arrived.wait()
    try:
        assert handle[24:28] == os.getpid().to_bytes(4, sys.byteorder)
        other = numbers[0].to_bytes(4, sys.byteorder)
        with pytest.raises(SharingError, match="or a damaged one"):
            loom.Event.from_ipc_handle("loom", handle[:24] + other + handle[28:])
    finally:
        end.set()
        thread.join()


def test_damage_of_every_kind_is_seen() -> None:
    """Each bit, and some 100 handles with several bytes of them changed: none is accepted."""
    draw = random.Random(20)
    event = loom.Event(interprocess=True)
    event.record()
    handle = event.ipc_handle()
    damaged = [
        bytearray(handle[:position] + bytes([handle[position] ^ 1 << bit]) + handle[position + 1 :])
        for position in range(len(handle))
        for bit in range(8)
    ]
    for _ in range(500 - len(damaged)):
        bad = bytearray(handle)
        for position in draw.sample(range(len(bad)), draw.randint(2, 8)):
            bad[position] ^= draw.randint(1, 255)
        damaged.append(bad)
    for bad in damaged:
        with pytest.raises(SharingError):
            loom.Event.from_ipc_handle("loom", bytes(bad))


def test_capturing_forbids_it() -> None:
    x = torch.ones(3, device="loom")
    graph = loom.LoomGraph() if hasattr(loom, "LoomGraph") else loom.graphs.Graph()
    with pytest.raises(RuntimeError, match="sending memory to another process"), loom.graph(graph):
        dumps(x)


@pytest.mark.slow
def test_other_threads_lose_nothing_while_memory_moves() -> None:
    """Sharing one tensor moves the pages of its neighbours, which kernels are writing."""
    loom.empty_cache()
    counters = [torch.zeros(40_000, device="loom") for _ in range(2)]
    number = [0, 0]
    stop = threading.Event()

    def count(which: int) -> None:
        while not stop.is_set():
            counters[which].add_(1)
            number[which] += 1

    threads = [threading.Thread(target=count, args=(which,)) for which in range(2)]
    for each in threads:
        each.start()
    kept = []
    try:
        for _ in range(8):
            kept.append(torch.ones(60_000, device="loom"))
            loads(dumps(kept[-1]))  # a message that nobody received would keep the memory
    finally:
        stop.set()
        for each in threads:
            each.join()
    for which in range(2):
        assert counters[which].unique().tolist() == [number[which]]
    assert min(number) > 0


@pytest.mark.exercises("torch.cuda.Event", "torch.cuda.streams.Event")
def test_events(peer: Peer) -> None:
    event, never = peer(ipc_peer.hold_stream_and_record), loom.Event(interprocess=True)
    assert not event.query()
    assert peer(ipc_peer.query, never)
    x = torch.ones(3, device="loom")
    peer(ipc_peer.keep, "x", x)
    stream = loom.Stream()
    with loom.stream(stream):
        late = x + 0  # in place, where nothing is known of it yet
        stream.wait_event(event)
        late = x + 0
    assert not stream.query()
    peer(ipc_peer.add, "x", 4)
    peer(ipc_peer.open_gate)
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert late.tolist() == [5, 5, 5]
    # The other way, with an event that this process opened.
    event.record()
    event.synchronize()
    assert peer(ipc_peer.query_kept)


def test_an_event_of_failed_work(peer: Peer) -> None:
    event = peer(ipc_peer.record_behind_failure)
    with pytest.raises(SharingError, match="failed in the process that recorded it"):
        event.synchronize()
    stream = loom.Stream()
    with pytest.raises(SharingError, match="failed in the process that recorded it"):
        _wait(stream, event)


def _wait(stream: Any, event: Any) -> None:
    stream.wait_event(event)
    stream.synchronize()


@pytest.mark.long
def test_events_that_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="interprocess=True"):
        loom.Event().ipc_handle()
    with pytest.raises(ValueError, match="keeps no time"):
        loom.Event(enable_timing=True, interprocess=True)
    with pytest.raises(TypeError, match="must be bytes, got str"):
        loom.Event.from_ipc_handle("loom", "x")
    event = loom.Event(interprocess=True)
    handle = event.ipc_handle()
    del event
    with pytest.raises(SharingError, match="there no more"):
        loom.Event.from_ipc_handle("loom", handle)


@pytest.mark.long
def test_a_killed_process() -> None:
    before = loom.memory_allocated()
    peer = Peer()
    mine = torch.ones(MIB, device="loom")
    peer(ipc_peer.keep, "x", mine)
    del mine
    theirs = peer(ipc_peer.make, "y", 5)
    message = peer(ipc_peer.pickled, "y")
    event = peer(ipc_peer.hold_stream_and_record)
    stream = loom.Stream()
    stream.wait_event(event)
    loom.ipc_collect()
    assert loom.memory_allocated() == before + 4 * MIB
    assert peer.process.pid is not None
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.end()
    loom.ipc_collect()
    assert loom.memory_allocated() == before
    theirs += 1
    assert theirs.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(SharingError, match="the process has ended"):
        loads(message)
    with pytest.raises(SharingError, match="ended before the work before it had finished"):
        event.synchronize()
    with pytest.raises(SharingError, match="ended before the work before it had finished"):
        stream.synchronize()


@pytest.mark.long
def test_many_times_without_growth(peer: Peer) -> None:
    def send_one() -> None:
        peer(ipc_peer.keep, "x", torch.ones(MIB // 4, device="loom"))
        peer(ipc_peer.drop, "x")
        event = loom.Event(interprocess=True)
        event.record()
        peer(ipc_peer.query, event)

    def figures() -> list[Any]:
        loom.ipc_collect()
        here = (loom.memory_allocated(), len(os.listdir("/proc/self/fd")))
        return [here, peer(ipc_peer.figures)]

    for _ in range(5):  # what is kept for the peer alternates between segments
        send_one()
    first = figures()
    for _ in range(60):
        send_one()
    assert figures() == first
