"""Planted races of whole programs: training, memory that is freed, graphs."""

from __future__ import annotations

import torch
from planted_race import DEVICE, default, on, ones, race, side

# --- training ---


def _loss(model: torch.nn.Module) -> torch.Tensor:
    return model(ones(4, 16)).square().mean()


@race("the optimizer steps on another stream than the backward pass")
def optimizer_on_side_stream(fixed: bool) -> None:
    model, a = torch.nn.Linear(16, 16).to(DEVICE), side()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _loss(model).backward()
    if fixed:
        a.wait_stream(default())
    with on(a):
        optimizer.step()
    torch.loom.synchronize()


@race("gradients are accumulated while another stream reads them")
def accumulated_gradient(fixed: bool) -> None:
    model, a = torch.nn.Linear(16, 16).to(DEVICE), side()
    _loss(model).backward()
    a.wait_stream(default())
    with on(a):
        norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()])
    if fixed:
        default().wait_stream(a)
    _loss(model).backward()
    a.synchronize()
    assert norm.isfinite().all()


@race("gradients are set to zero while another stream reads them")
def zeroed_gradient(fixed: bool) -> None:
    model, a = torch.nn.Linear(16, 16).to(DEVICE), side()
    _loss(model).backward()
    a.wait_stream(default())
    with on(a):
        norm = model.weight.grad.norm()
    if fixed:
        default().wait_stream(a)
    model.zero_grad(set_to_none=False)
    a.synchronize()
    assert norm.isfinite()


@race("a bucket of gradients is reduced before it is filled")
def bucket_reduced_too_early(fixed: bool) -> None:
    gradients, bucket, comm = [ones(), ones()], ones(2, 4096), side()
    comm.wait_stream(default())
    for row, gradient in zip(bucket, gradients, strict=True):
        row.copy_(gradient)
    if fixed:
        comm.wait_stream(default())
    with on(comm):
        bucket.div_(2)


@race("a bucket of gradients is read before it is reduced")
def bucket_read_too_early(fixed: bool) -> None:
    gradient, bucket, comm = ones(), ones(2, 4096), side()
    comm.wait_stream(default())
    with on(comm):
        bucket.div_(2)
    if fixed:
        default().wait_stream(comm)
    gradient.copy_(bucket[1])


@race("averaged weights are updated on a side stream while the optimizer changes the weights")
def averaged_weights(fixed: bool) -> None:
    weight, average, a = ones(), ones(), side()
    a.wait_stream(default())
    with on(a):
        average.lerp_(weight, 0.1)
    if fixed:
        default().wait_stream(a)
    weight.sub_(0.1)


# --- memory that is freed ---
# Sizes of their own: what else lies in the cache is no better fit for the second tensor than the first one's.


@race(
    "a tensor is freed while a side stream reads it, and its memory is used again", "MissingRecordStreamError"
)
def missing_record_stream(fixed: bool) -> None:
    x, a = ones(5000), side()
    a.wait_stream(default())
    with on(a):
        x + 1
    if fixed:
        x.record_stream(a)
    del x
    ones(5000)


@race("as before, and the memory becomes the result of an op", "MissingRecordStreamError")
def missing_record_stream_before_an_op(fixed: bool) -> None:
    x, other, a = ones(5500), ones(5500), side()
    a.wait_stream(default())
    with on(a):
        x + 1
    if fixed:
        x.record_stream(a)
    del x
    other + 1


@race("a prefetched batch is freed while the default stream reads it", "MissingRecordStreamError")
def missing_record_stream_of_a_batch(fixed: bool) -> None:
    host, a = torch.ones(6000).pin_memory(), side()
    for _ in range(2):
        with on(a):
            batch = host.to(DEVICE, non_blocking=True)
        default().wait_stream(a)
        if fixed:
            batch.record_stream(default())
        batch * 2
        del batch


@race("record_stream names another stream than the one that uses the tensor", "MissingRecordStreamError")
def record_stream_of_another_stream(fixed: bool) -> None:
    x, a, b = ones(6500), side(), side()
    a.wait_stream(default())
    with on(a):
        x + 1
    x.record_stream(a if fixed else b)
    del x
    ones(6500)


@race(
    "the stream that frees a tensor waits for its user only after the memory is used again",
    "MissingRecordStreamError",
)
def wait_after_reuse(fixed: bool) -> None:
    x, a = ones(7000), side()
    a.wait_stream(default())
    with on(a):
        x + 1
    del x
    if fixed:
        default().wait_stream(a)
    ones(7000)
    default().wait_stream(a)


@race("new memory is used on a side stream while its last owner's kernel is pending", "UseAfterFreeError")
def use_after_free(fixed: bool) -> None:
    x, a = ones(7500), side()
    x.mul_(2)
    del x
    y = torch.empty(7500, device=DEVICE)
    if fixed:
        a.wait_stream(default())
    with on(a):
        y.zero_()


# --- graphs ---


@race("a graph's input is written while a replay on another stream reads it")
def graph_replay_against_eager(fixed: bool) -> None:
    x, a, graph = ones(), side(), torch.loom.CUDAGraph()
    x + 1
    torch.loom.synchronize()
    with torch.loom.graph(graph):
        y = x + 1
    with on(a):
        graph.replay()
    if fixed:
        default().wait_stream(a)
    x.zero_()
    torch.loom.synchronize()
    assert y.device.type == DEVICE


@race("a graph's output is read before the replay on another stream has finished")
def graph_output_too_early(fixed: bool) -> None:
    x, a, graph = ones(), side(), torch.loom.CUDAGraph()
    x + 1
    torch.loom.synchronize()
    with torch.loom.graph(graph):
        y = x + 1
    with on(a):
        graph.replay()
    if fixed:
        default().wait_stream(a)
    y * 2
