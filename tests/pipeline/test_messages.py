"""What ranks send one another comes out as it went in; queues with a twin on another rank keep in step."""

from __future__ import annotations

import pickle
import queue
from typing import Any

import pytest
import torch

from torch_loom.errors import PipelineError, PipelineStoppedError, RankError, StageError
from torch_loom.pipeline import Channel, Lifeline, Pipeline, Stage, stage_error
from torch_loom.pipeline.failure import original_error
from torch_loom.pipeline.message import Message, decode, encode, num_body_bytes
from torch_loom.pipeline.readers import GuardedQueue


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.int64, torch.complex64]
)
def test_tensors_of_every_shape(dtype: torch.dtype) -> None:
    tensors = (
        torch.arange(15).reshape(3, 5).t().to(dtype),
        None,
        torch.ones((), dtype=dtype),
        torch.zeros(2, 0, dtype=dtype),
        torch.arange(3).to(dtype),
    )
    first, body = encode(Message("data", 7, "forward 0", {"names": ["a"]}, tensors))
    assert num_body_bytes(first) == (0 if body is None else body.numel())
    got = decode(first, body)
    assert (got.kind, got.run, got.key, got.value) == ("data", 7, "forward 0", {"names": ["a"]})
    for a, b in zip(got.tensors, tensors, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert a.dtype is b.dtype
            assert a.shape == b.shape
            assert a.tolist() == b.tolist()
    # Views of one buffer would share autograd's version counter.
    storages = [t.untyped_storage().data_ptr() for t in got.tensors if t is not None and t.numel()]
    assert len(set(storages)) == 3


def test_a_head_longer_than_a_packet() -> None:
    text = "a long message " * 200
    first, body = encode(Message("failed", value=[text], tensors=(torch.ones(3),)))
    got = decode(first, body)
    assert got.value == [text]
    assert got.tensors[0] is not None
    assert got.tensors[0].tolist() == [1, 1, 1]


def test_tensors_come_with_their_order_in_memory_and_their_values() -> None:
    last = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    values = torch.tensor([1 + 2j, 3 - 4j])
    sent = (last, last[:, :1], torch.ones(1).expand(3), values.conj(), values.conj().imag)
    got = decode(*encode(Message("data", tensors=sent)))
    for a, b in zip(got.tensors, sent, strict=True):
        assert a is not None
        assert a.tolist() == b.tolist()
    assert got.tensors[0] is not None
    assert got.tensors[0].stride() == last.stride()


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(PipelineError, match="make it dense"):
        encode(Message("data", tensors=(torch.ones(2, 2).to_sparse(),)))


def test_entries_that_another_rank_consumes_are_dropped() -> None:
    channel: Channel[int] = Channel("inputs", 8)
    channel.put(0)
    channel.discard(3)
    for item in (1, 2, 3):
        channel.put(item)
    assert (len(channel), channel.peek()) == (1, 3)
    channel.discard(1 << 60)
    channel.put(4)
    channel.discard_no_more()
    channel.put(5)
    assert channel.get() == 5


def test_a_closed_queue_gives_what_it_has_and_then_says_why() -> None:
    channel: Channel[int] = Channel("forward 0", 8)
    channel.put(1)
    channel.close(PipelineStoppedError("rank 1 has shut the pipeline down"))
    assert channel.get() == 1
    with pytest.raises(PipelineStoppedError, match="rank 1"):
        channel.get()


def test_readers_hear_that_nothing_more_will_come() -> None:
    lifeline = Lifeline()
    results: queue.Queue[int] = queue.Queue()
    guard = GuardedQueue(results, lifeline)
    for _ in range(2):
        guard.add_writer()
    guard.put(1)
    guard.end_writer(PipelineStoppedError("rank 2 has shut the pipeline down"))
    assert results.get() == 1
    with pytest.raises(queue.Empty):
        results.get(block=False)  # another writer is left
    guard.end_writer(PipelineStoppedError("rank 1 has shut the pipeline down"))
    with pytest.raises(PipelineStoppedError, match="rank 1"):
        results.get(timeout=60)
    lifeline.check()  # the pipeline itself goes on


def test_an_error_told_by_text_is_the_same_error() -> None:
    made = stage_error("last", "run_forward", ValueError("too wide"))
    told = StageError.of(made.stage, str(made), ValueError("too wide"))
    assert isinstance(told, ValueError)
    assert isinstance(told, StageError)
    assert (str(told), told.stage) == (str(made), "last")


class Outer:
    class WithinError(ValueError):
        pass


def test_the_class_of_an_error_told_by_name() -> None:
    assert type(original_error(__name__, "Outer.WithinError", "no")) is Outer.WithinError
    for module, name in (("no_module", "A"), (__name__, "Outer"), ("builtins", "UnicodeDecodeError")):
        assert type(original_error(module, name, "no")) is RuntimeError


def test_ranks_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RankError, match="torchrun"):
        Pipeline([Stage("a", torch.nn.Identity())], ranks=[0])
    with Pipeline([Stage("a", torch.nn.Identity())], ranks="local") as pipeline:
        assert pipeline.is_here(0)


class _CodedError(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _DiskError(OSError):
    def __init__(self) -> None:
        super().__init__(28, "No space")


@pytest.mark.parametrize(
    ("cause", "name", "value"),
    [
        (OSError(28, "No space", "file"), "errno", 28),
        (UnicodeDecodeError("utf8", b"x", 0, 1, "why"), "reason", "why"),
        (_CodedError("wrong", 7), "code", 7),
        (KeyError("key"), "stage", "s0"),
        (ModuleNotFoundError("no module", name="missing"), "name", "missing"),
        (_DiskError(), "errno", 28),
    ],
)
def test_the_error_of_a_stage_has_what_the_original_has(cause: Exception, name: str, value: Any) -> None:
    made = stage_error("s0", "run", cause)
    assert isinstance(made, type(cause))
    assert getattr(made, name) == value
    assert str(made).startswith("stage 's0' failed in run: ")
    again = pickle.loads(pickle.dumps(made))
    assert (str(again), again.stage) == (str(made), "s0")
    if not isinstance(cause, _CodedError | _DiskError):  # which are no pickles themselves
        assert repr(again.__cause__) == repr(cause)
        assert getattr(again, name) == value
