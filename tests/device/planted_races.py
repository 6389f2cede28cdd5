"""Races to be found, each beside its repaired twin; docs/races.md shows the table.

``python tests/device/planted_races.py`` writes the table into docs/races.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

DEVICE = "loom"
DOC = Path(__file__).parents[2] / "docs" / "races.md"
BEGIN, END = "<!-- planted races: begin -->", "<!-- planted races: end -->"


@dataclass(frozen=True)
class Race:
    """A planted race.

    Attributes:
        body: the program; its argument says whether it is the repaired twin.
        what: what is wrong, in a line.
        error: the class of the report.
    """

    body: Callable[[bool], None]
    what: str
    error: str

    @property
    def name(self) -> str:
        return self.body.__name__


RACES: list[Race] = []


def race(
    what: str, error: str = "UnsynchronizedAccessError"
) -> Callable[[Callable[[bool], None]], Callable[[bool], None]]:
    def add(body: Callable[[bool], None]) -> Callable[[bool], None]:
        RACES.append(Race(body, what, error))
        return body

    return add


def default(device: int = 0) -> torch.Stream:
    return torch.loom.default_stream(device)


def side(device: int = 0) -> torch.Stream:
    return torch.loom.Stream(device=f"{DEVICE}:{device}")


def on(stream: torch.Stream) -> torch.loom.StreamContext:
    return torch.loom.stream(stream)


def ones(*sizes: int, device: str = DEVICE) -> torch.Tensor:
    return torch.ones(sizes or (4096,), device=device)


# --- a wait is missing ---


@race("a side stream reads what the default stream writes, without waiting")
def read_without_wait(fixed: bool) -> None:
    x, a = ones(), side()
    if fixed:
        a.wait_stream(default())
    with on(a):
        x + 1


@race("a side stream overwrites what the default stream may still read")
def write_without_wait(fixed: bool) -> None:
    x, a = ones(), side()
    a.wait_stream(default())
    x * 2
    if fixed:
        a.wait_stream(default())
    with on(a):
        x.copy_(ones())


@race("an in-place op on a side stream, without waiting")
def in_place_without_wait(fixed: bool) -> None:
    x, a = ones(), side()
    if fixed:
        a.wait_stream(default())
    with on(a):
        x.add_(1)


@race("a fill on a side stream while a kernel of the default stream reads")
def fill_against_kernel(fixed: bool) -> None:
    x, a = ones(), side()
    a.wait_stream(default())
    x.sum()
    if fixed:
        a.wait_stream(default())
    with on(a):
        x.zero_()


@race("the default stream reads what a side stream writes: it is a stream like the others")
def default_against_side(fixed: bool) -> None:
    a = side()
    with on(a):
        x = ones()
    if fixed:
        default().wait_stream(a)
    x + 1


@race("two side streams write the same tensor")
def write_against_write(fixed: bool) -> None:
    x, a, b = ones(), side(), side()
    for stream in (a, b):
        stream.wait_stream(default())
    with on(a):
        x.fill_(1)
    if fixed:
        b.wait_stream(a)
    with on(b):
        x.fill_(2)


@race("one of three streams in a chain does not wait for the one before it")
def chain_of_three(fixed: bool) -> None:
    x, a, b = ones(), side(), side()
    a.wait_stream(default())
    with on(a):
        x.mul_(2)
    b.wait_stream(a if fixed else default())
    with on(b):
        x + 1


@race("a view of the same storage is read on another stream")
def view_of_a_view(fixed: bool) -> None:
    x, a = ones(64, 64), side()
    a.wait_stream(default())
    with on(a):
        x[:, :32].fill_(2)
    if fixed:
        default().wait_stream(a)
    x[:, 16:] + 1


@race("a transposed view is read while the tensor is written")
def transposed_view(fixed: bool) -> None:
    x, a = ones(64, 64), side()
    a.wait_stream(default())
    with on(a):
        x.t().contiguous()
    if fixed:
        default().wait_stream(a)
    x[7].zero_()


@race("a copy on a side stream while a kernel writes its source")
def copy_against_kernel(fixed: bool) -> None:
    x, y, a = ones(), ones(), side()
    a.wait_stream(default())
    with on(a):
        y.copy_(x)
    if fixed:
        default().wait_stream(a)
    x.mul_(3)


# --- a wait for something else ---


@race("the event is recorded before the work that is to be waited for")
def event_too_early(fixed: bool) -> None:
    x, a, event = ones(), side(), torch.loom.Event()
    if not fixed:
        event.record(default())
    x.add_(1)
    if fixed:
        event.record(default())
    a.wait_event(event)
    with on(a):
        x * 2


@race("the wrong event of two is waited for")
def wrong_event(fixed: bool) -> None:
    x, y, a = ones(), ones(), side()
    a.wait_stream(default())
    first, second = torch.loom.Event(), torch.loom.Event()
    x.add_(1)
    first.record(default())
    y.add_(1)
    second.record(default())
    a.wait_event(second if fixed else first)
    with on(a):
        y * 2


@race("the wrong stream is waited for")
def wrong_stream(fixed: bool) -> None:
    a, b = side(), side()
    with on(a):
        x = ones()
    default().wait_stream(a if fixed else b)
    x + 1


@race("the event was recorded again, on another stream, before it is waited for")
def event_recorded_again(fixed: bool) -> None:
    x, a, b = ones(), side(), side()
    a.wait_stream(default())
    x.add_(1)
    event = torch.loom.Event()
    event.record(default())
    other = torch.loom.Event() if fixed else event
    other.record(b)
    a.wait_event(event)
    with on(a):
        x * 2


@race("the event is recorded on another stream than the work")
def event_on_wrong_stream(fixed: bool) -> None:
    a, event = side(), torch.loom.Event()
    with on(a):
        x = ones()
    event.record(a if fixed else default())
    default().wait_event(event)
    x + 1


@race("an event that was never recorded is waited for")
def event_never_recorded(fixed: bool) -> None:
    a, event = side(), torch.loom.Event()
    with on(a):
        x = ones()
    if fixed:
        event.record(a)
    default().wait_event(event)
    x + 1


@race("the wait comes before the work is issued")
def wait_too_early(fixed: bool) -> None:
    a = side()
    if not fixed:
        default().wait_stream(a)
    with on(a):
        x = ones()
    if fixed:
        default().wait_stream(a)
    x + 1


@race("the host waits for an event that lies before the work")
def host_waits_for_wrong_event(fixed: bool) -> None:
    a, early, late = side(), torch.loom.Event(), torch.loom.Event()
    with on(a):
        x = ones()
        early.record(a)
        x.add_(1)
        late.record(a)
    (late if fixed else early).synchronize()
    x * 2


@race("the host waits for another stream than that of the work")
def host_waits_for_wrong_stream(fixed: bool) -> None:
    a, b = side(), side()
    with on(a):
        x = ones()
    (a if fixed else b).synchronize()
    x * 2


# --- copies ---


@race("a batch that is copied to the device on a side stream is used before it is there")
def prefetch_without_wait(fixed: bool) -> None:
    host, a = torch.ones(4096).pin_memory(), side()
    with on(a):
        x = host.to(DEVICE, non_blocking=True)
    if fixed:
        default().wait_stream(a)
        x.record_stream(default())
    x + 1


@race("a tensor is overwritten while it is copied to the host")
def device_to_host_source(fixed: bool) -> None:
    x, a = ones(), side()
    host = torch.empty(4096).pin_memory()
    a.wait_stream(default())
    with on(a):
        host.copy_(x, non_blocking=True)
    if fixed:
        default().wait_stream(a)
    x.zero_()
    torch.loom.synchronize()


@race("pinned memory is copied to the device while another stream copies to it")
def pinned_round_trip(fixed: bool) -> None:
    x, a = ones(), side()
    host = torch.empty(4096).pin_memory()
    a.wait_stream(default())
    with on(a):
        host.copy_(x, non_blocking=True)
    if fixed:
        default().wait_stream(a)
    host.to(DEVICE, non_blocking=True)
    torch.loom.synchronize()


@race("a copy to another device reads what a side stream writes")
def cross_device_source(fixed: bool) -> None:
    a = side(0)
    with on(a):
        x = ones(device=f"{DEVICE}:0")
    if fixed:
        default(0).wait_stream(a)
    x.to(f"{DEVICE}:1")


@race("a copy to another device writes what a side stream of that device reads")
def cross_device_destination(fixed: bool) -> None:
    x, y, b = ones(device=f"{DEVICE}:0"), ones(device=f"{DEVICE}:1"), side(1)
    b.wait_stream(default(1))
    with on(b):
        y + 1
    if fixed:
        default(1).wait_stream(b)
    y.copy_(x)


@race("a buffer of two is filled again before its consumer is done")
def double_buffer(fixed: bool) -> None:
    buffers, a = [ones(), ones()], side()
    host = torch.ones(4096).pin_memory()
    a.wait_stream(default())
    consumed: list[torch.loom.Event | None] = [None, None]
    for step in range(4):
        slot = step % 2
        done = consumed[slot]
        with on(a):
            if fixed and done is not None:
                a.wait_event(done)
            buffers[slot].copy_(host, non_blocking=True)
        default().wait_stream(a)
        buffers[slot].sum()
        consumed[slot] = torch.loom.Event()
        consumed[slot].record(default())


# --- kinds of ops ---


@race("one tensor of a list op is used on another stream")
def foreach_operand(fixed: bool) -> None:
    tensors, a = [ones(), ones(), ones()], side()
    a.wait_stream(default())
    with on(a):
        torch._foreach_add_(tensors, 1)
    if fixed:
        default().wait_stream(a)
    tensors[2] * 2


@race("the tensor given as out= is read on another stream")
def out_operand(fixed: bool) -> None:
    x, y, a = ones(), ones(), side()
    a.wait_stream(default())
    with on(a):
        torch.add(x, 1, out=y)
    if fixed:
        default().wait_stream(a)
    y * 2


@race("the result of an op is read on another stream")
def output_of_an_op(fixed: bool) -> None:
    x, a = ones(64, 64), side()
    a.wait_stream(default())
    with on(a):
        y = x @ x
    if fixed:
        default().wait_stream(a)
    y + 1


@race("random numbers are drawn in place while another stream reads")
def random_in_place(fixed: bool) -> None:
    x, a = ones(), side()
    a.wait_stream(default())
    with on(a):
        x.normal_()
    if fixed:
        default().wait_stream(a)
    x.sum()


@race("an embedding table is updated by index while it is read")
def scattered_write(fixed: bool) -> None:
    table, rows, a = ones(64, 16), torch.arange(8, device=DEVICE), side()
    a.wait_stream(default())
    with on(a):
        table.index_add_(0, rows, torch.ones(8, 16, device=DEVICE))
    if fixed:
        default().wait_stream(a)
    torch.nn.functional.embedding(rows, table)


@race("a list that is concatenated has one tensor that is not ready")
def concatenated_list(fixed: bool) -> None:
    x, a = ones(), side()
    with on(a):
        y = ones()
    if fixed:
        default().wait_stream(a)
    torch.cat([x, y])


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


def table() -> str:
    """Return the races as a table in Markdown."""
    rows = [f"| `{race.name}` | {race.what} | `{race.error}` |" for race in RACES]
    return "\n".join(["| planted race | what is wrong | reported as |", "|---|---|---|", *rows])


def written(text: str) -> str:
    """Return the document with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOC.write_text(written(DOC.read_text(encoding="utf-8")), encoding="utf-8")
