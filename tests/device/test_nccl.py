"""torch.loom.nccl: collectives over one tensor per device."""

from __future__ import annotations

import warnings

import pytest
import torch

import torch_loom.device as loom
from torch_loom.device import nccl
from torch_loom.errors import CommunicationError, NotApplicableError

A, B = torch.tensor([1, 5, 3, 4]), torch.tensor([4, 2, 3, 1])


def pair(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [A.to("loom:0", dtype), B.to("loom:1", dtype)]


def values(tensors: list[torch.Tensor]) -> list[list[float]]:
    return [tensor.tolist() for tensor in tensors]


@pytest.mark.exercises("torch.cuda.nccl.all_reduce", "torch.cuda.nccl.reduce")
@pytest.mark.parametrize(
    ("op", "expected"),
    [(0, [5, 7, 6, 5]), (1, [4, 10, 9, 4]), (2, [4, 5, 3, 4]), (3, [1, 2, 3, 1]), (4, [2.5, 3.5, 3, 2.5])],
)
def test_reductions(op: int, expected: list[float]) -> None:
    tensors = pair()
    nccl.all_reduce(tensors, op=op)
    assert values(tensors) == [expected, expected]
    inputs, outputs = pair(), pair()
    nccl.all_reduce(inputs, outputs, op)
    assert values(inputs) == values(pair())
    assert values(outputs) == [expected, expected]
    nccl.reduce(inputs, root=1, op=op)
    assert values(inputs) == [A.tolist(), expected]
    whole = pair(torch.int32)
    nccl.reduce(whole, output=(total := torch.zeros(4, dtype=torch.int32, device="loom:0")), op=op)
    assert total.tolist() == [int(value) for value in expected]
    with pytest.warns(FutureWarning):
        nccl.reduce(pair(), outputs=outputs, op=op)
    with pytest.raises(ValueError, match="both"):
        nccl.reduce(pair(), outputs[0], outputs=outputs)


@pytest.mark.exercises(
    "torch.cuda.nccl.broadcast", "torch.cuda.nccl.all_gather", "torch.cuda.nccl.reduce_scatter"
)
def test_what_moves() -> None:
    tensors = pair()
    nccl.broadcast(tensors, root=1)
    assert values(tensors) == [B.tolist(), B.tolist()]
    outputs = [torch.zeros(8, device=f"loom:{i}") for i in range(2)]
    nccl.all_gather(pair(), outputs)
    assert values(outputs) == [[*A.tolist(), *B.tolist()]] * 2
    outputs = [torch.zeros(2, device=f"loom:{i}") for i in range(2)]
    nccl.reduce_scatter(pair(), outputs)
    assert values(outputs) == [[5, 7], [6, 5]]


@pytest.mark.exercises("torch.cuda.nccl.all_reduce")
def test_works_on_the_given_streams() -> None:
    streams = [loom.Stream(i) for i in range(2)]
    tensors = []
    for i, stream in enumerate(streams):
        with stream:
            tensors.append(torch.full((4096,), float(i + 1), device=f"loom:{i}"))
    # Without these streams it would race with the fills: the sanitizer would stop it here.
    loom.sanitizer.enable()
    try:
        nccl.all_reduce(tensors, streams=streams)
        assert loom.current_stream(0) == loom.default_stream(0)
        for i, stream in enumerate(streams):
            with stream:
                assert tensors[i].sum().item() == 3 * 4096
    finally:
        loom.sanitizer.disable()


@pytest.mark.exercises("torch.cuda.nccl.is_available")
def test_is_available() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nccl.is_available(pair())
        assert not nccl.is_available([A])
        assert not nccl.is_available([A.to("loom"), B.to("loom")])
        assert not nccl.is_available([torch.ones(4, 4, device="loom")[:, 1]])
        assert not nccl.is_available([torch.ones(3, device="loom").to_sparse()])


def test_errors_name_what_does_not_fit() -> None:
    for call, kind, message in (
        (lambda: nccl.all_reduce(pair()[0]), TypeError, "collection"),
        (lambda: nccl.all_reduce([]), CommunicationError, "at least one"),
        (lambda: nccl.all_reduce([A]), CommunicationError, "on cpu"),
        (lambda: nccl.all_reduce([A.to("loom"), B.to("loom")]), CommunicationError, "another device"),
        (lambda: nccl.all_reduce(pair(), op=9), CommunicationError, "9"),
        (lambda: nccl.all_reduce(pair(), pair()[:1]), CommunicationError, "2 inputs but 1"),
        (lambda: nccl.broadcast(pair(), root=2), CommunicationError, r"0…1, but got 2"),
        (lambda: nccl.all_gather(pair(), pair()), CommunicationError, "2 times as many"),
        (lambda: nccl.all_reduce(pair(), streams=[loom.Stream(0)]), CommunicationError, "1 streams"),
    ):
        with pytest.raises(kind, match=message):
            call()


@pytest.mark.exercises("torch.cuda.nccl.version", "torch.cuda.nccl.unique_id", "torch.cuda.nccl.init_rank")
def test_there_are_no_communicators() -> None:
    for call in (nccl.version, nccl.unique_id, lambda: nccl.init_rank(2, b"", 0)):
        with pytest.raises(NotApplicableError, match="NCCL"):
            call()
