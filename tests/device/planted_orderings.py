"""Planted races: a wait that is missing or for something else, copies, kinds of ops."""

from __future__ import annotations

import torch
from planted_race import DEVICE, default, on, ones, race, side

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
