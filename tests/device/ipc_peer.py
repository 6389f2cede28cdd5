"""A second process for the tests of sharing: it does what it is told over a pipe."""

from __future__ import annotations

import contextlib
import os
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing as mp

from tests.gate import installed

loom: Any = torch.loom  # type: ignore[attr-defined]

# What the process holds, by name.
kept: dict[str, Any] = {}


class Peer:
    """The other end: ``peer(function, *arguments)`` calls a function of this file in the process."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, function: Any, *args: Any) -> Any:
        self.pipe.send((function.__name__, args))
        is_good, answer = self.pipe.recv()
        if not is_good:
            raise AssertionError(f"in the peer: {answer}")
        return answer

    def end(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
        self.process.join(20)
        assert not self.process.is_alive()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    while True:
        try:
            request = pipe.recv()
            if request is None:
                return
            pipe.send((True, globals()[request[0]](*request[1])))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


def keep(name: str, value: Any) -> None:
    kept[name] = value


def get(name: str) -> Any:
    return kept[name]


def drop(name: str | None = None) -> None:
    if name is None:
        kept.clear()
    else:
        del kept[name]
    loom.ipc_collect()


def add(name: str, number: float) -> list[Any]:
    kept[name].add_(number)
    loom.current_stream().synchronize()  # the others may be held up
    return list(kept[name].tolist())


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor),
        tensor.device.index,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.requires_grad,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.tolist(),
    )


def same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.untyped_storage()._cdata == second.untyped_storage()._cdata


def same_as_kept(name: str, tensor: torch.Tensor) -> bool:
    return same_storage(kept[name], tensor)


def error_of(action: str, name: str) -> str:
    actions = {
        "pickle": ForkingPickler.dumps,
        "resize": lambda tensor: tensor.resize_(1 << 20),
    }
    try:
        actions[action](kept[name])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def sum_of(name: str) -> float:
    return float(kept[name].sum())


def fill_storage(storage: Any, value: int) -> int:
    storage.fill_(value)
    loom.synchronize()
    return len(storage)


def facts_of_dense(tensor: torch.Tensor) -> Any:
    return tensor.to_dense().tolist()


def pickled(name: str) -> bytes:
    return bytes(ForkingPickler.dumps(kept[name]))


def make(name: str, size: int) -> torch.Tensor:
    kept[name] = torch.arange(float(size), device="loom")
    return kept[name]


def figures() -> tuple[int, int]:
    """Bytes allocated, and open files."""
    return loom.memory_allocated(), len(os.listdir("/proc/self/fd"))


def hold_stream_and_record() -> torch.Event:
    """An event behind work that never ends."""
    gates = contextlib.ExitStack()
    gate = gates.enter_context(installed())
    stream = loom.Stream()
    gate.hold(stream)
    kept["gate"], kept["gates"] = gate, gates
    kept["event"] = loom.Event(interprocess=True)
    kept["event"].record(stream)
    return kept["event"]


def open_gate() -> None:
    kept["gate"].open()


def query(event: torch.Event) -> bool:
    return event.query()


def query_kept() -> bool:
    return bool(kept["event"].query())


def record_behind_failure() -> torch.Event:
    stream, event = loom.Stream(), loom.Event(interprocess=True)
    index = torch.tensor([7], device="loom")
    with loom.stream(stream):
        torch.zeros(3, device="loom").index_select(0, torch.zeros(1, dtype=torch.int64, device="loom"))
        stream.synchronize()
        torch.zeros(3, device="loom").index_select(0, index)
        event.record()
    kept["event"] = event
    return event
