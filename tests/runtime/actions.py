"""What the steps of a program do: each function is one action, and its arguments are the step's numbers."""

from __future__ import annotations

import numpy as np
import torch

import torch_loom.device as loom

from .allocator_model import ModelError
from .changes import CHANGES, action, change, change_model, operand_for, pattern
from .executor import DEVICES, DTYPES, EVENTS, NUMPY, STREAMS, Executor, Handle

# --- memory ---


@action
def allocate(run: Executor, stream: int, size: int, dtype: int, value: int, source: int) -> None:
    """Make a tensor with known contents: from the host, by a factory, or by filling it."""
    kind = DTYPES[dtype]
    count = size // kind.itemsize
    device = torch.device("loom", stream // STREAMS)
    with run.stream(stream):
        try:
            if source == 0:
                tensor = torch.full((count,), value, dtype=kind, device=device)
            else:
                tensor = torch.empty(count, dtype=kind, device=device)
        except torch.OutOfMemoryError:
            run.ran_out(stream, count * kind.itemsize)
            return
        data = np.full(count, value, NUMPY[kind])
        if source == 1:
            tensor.fill_(value)
        elif source == 2:
            data = pattern(count, kind, value)
            tensor.copy_(torch.from_numpy(data))
    run.use(stream, 0, reads=[], writes=[run.adopt(tensor, stream, data).storage])


@action
def free(run: Executor, index: int, how: int) -> None:
    """Let go of a tensor or view."""
    handle = run.pick(index)
    if handle is not None:
        run.drop(handle, how)


@action
def view(run: Executor, index: int, start: int, step: int) -> None:
    """Make a view, contiguous or not."""
    handle = run.pick(index)
    if handle is None or handle.storage.handles > 3:
        return
    start = start % (len(handle.array) + 1)
    handle.storage.handles += 1
    run.handles.append(Handle(handle.tensor[start::step], handle.array[start::step], handle.storage))


@action
def resize(run: Executor, index: int, size: int, value: int) -> None:
    """Resize a tensor in place; what is new is filled."""
    handle = run.pick(index)
    if handle is None or not handle.is_whole:
        return
    storage, tensor = handle.storage, handle.tensor
    count, before = size // tensor.dtype.itemsize, len(handle.array)
    for captured in [each for each in run.graphs if run.uses(each, storage)]:
        run.drop_graph(captured)
    run.use(storage.home, 0, reads=[], writes=[storage])
    ledger = run.ledgers[storage.device]
    with run.stream(storage.home):
        try:
            tensor.resize_(count)
        except torch.OutOfMemoryError:
            run.ran_out(storage.home, count * tensor.dtype.itemsize)
            if tensor.shape != (before,):
                raise ModelError(f"resize_ ran out of memory and left a shape of {tensor.shape}") from None
            return
        if count > len(storage.data):
            old = storage.address
            storage.address = tensor.untyped_storage().data_ptr()
            ledger.allocated(storage.address, count * tensor.dtype.itemsize, storage.home)
            ledger.freed(old)
            storage.data = np.concatenate(
                [storage.data, np.zeros(count - len(storage.data), storage.data.dtype)]
            )
        handle.array = storage.data[:count]
        if count > before:
            tensor[before:].fill_(value)
            handle.array[before:] = value


@action
def empty_cache(run: Executor, device: int) -> None:
    """Give cached memory back."""
    loom.empty_cache(device)
    run.ledgers[device].flushed()


@action
def limit_memory(run: Executor, device: int, eighths: int) -> None:
    """Set the share of the device's memory that the process may take."""
    loom.set_per_process_memory_fraction(eighths / 8, device)
    run.ledgers[device].limited(eighths / 8)


@action
def record_stream(run: Executor, index: int, stream: int) -> None:
    """Record a stream, of the tensor's device, that may not have used the tensor."""
    handle = run.pick(index)
    if handle is None:
        return
    storage = handle.storage
    number = storage.device * STREAMS + stream % STREAMS
    # PyTorch's rule: a tensor without elements has no memory to record.
    handle.tensor.record_stream(run.stream(number))
    run.ledgers[storage.device].recorded(storage.address, storage.home, number)


@action
def reset_peaks(run: Executor, device: int) -> None:
    """Reset the peaks."""
    loom.reset_peak_memory_stats(device)
    run.ledgers[device].reset_peaks()


@action
def reset_accumulated(run: Executor, device: int) -> None:
    """Reset the totals."""
    loom.reset_accumulated_memory_stats(device)
    run.ledgers[device].reset_accumulated()


# --- work ---


@action
def change_in_place(
    run: Executor, index: int, stream: int, kind: int, other: int, value: int, how: int
) -> None:
    """Change a tensor in place on any stream of its device."""
    handle = run.pick(index)
    if handle is None:
        return
    operand = operand_for(run, CHANGES[kind], handle, other, value)
    if operand is None:
        return
    number = handle.storage.device * STREAMS + stream % STREAMS
    reads = [operand.storage] if isinstance(operand, Handle) else []
    run.use(number, how, reads=reads, writes=[handle.storage])
    with run.stream(number):
        change(CHANGES[kind], handle.tensor, operand)
    change_model(CHANGES[kind], handle.array, operand)


@action
def make(run: Executor, index: int, stream: int, value: int, how: int) -> None:
    """Compute a new tensor from another."""
    handle = run.pick(index)
    if handle is None:
        return
    number = handle.storage.device * STREAMS + stream % STREAMS
    run.use(number, how, reads=[handle.storage], writes=[])
    with run.stream(number):
        try:
            tensor = handle.tensor + value
        except torch.OutOfMemoryError:
            run.ran_out(number, handle.array.nbytes)
            return
    data = np.array(handle.array)
    change_model("add_", data, value)
    run.use(number, how, reads=[], writes=[run.adopt(tensor, number, data).storage])


@action
def replace(run: Executor, index: int, stream: int, value: int) -> None:
    """Let go of a tensor that another stream is using, and fill new memory of its size."""
    handle = run.pick(index)
    if handle is None or handle.storage.handles > 1:
        return
    where = run.handles.index(handle)
    change_in_place(run, where, stream, CHANGES.index("mul_"), 0, value, 0)
    make(run, where, stream, value, 0)
    storage, dtype = handle.storage, DTYPES.index(handle.tensor.dtype)
    run.drop(handle, 0)
    allocate(run, storage.home, storage.data.nbytes, dtype, value, 1)


@action
def copy_between(run: Executor, to: int, source: int, first: int, second: int, how: int) -> None:
    """Copy the beginning of a tensor to another, maybe of the other device."""
    whole = [each for each in run.handles if each.tensor.is_contiguous()]
    if not whole:
        return
    source_handle = whole[source % len(whole)]
    fitting = [
        each
        for each in whole
        if each.tensor.dtype == source_handle.tensor.dtype and each.storage is not source_handle.storage
    ]
    if not fitting:
        return
    handle = fitting[to % len(fitting)]
    own = source_handle.storage.device * STREAMS + first % STREAMS
    other = handle.storage.device * STREAMS + second % STREAMS
    count = min(len(handle.array), len(source_handle.array))
    if own // STREAMS == other // STREAMS:
        run.use(own, how, reads=[source_handle.storage], writes=[handle.storage])
        with run.stream(own):
            handle.tensor[:count].copy_(source_handle.tensor[:count])
    else:
        run.order(own, source_handle.storage.access.writes, how)
        run.order(other, handle.storage.access.all, how)
        with run.stream(other), run.stream(own):
            handle.tensor[:count].copy_(source_handle.tensor[:count])
        # It runs on the source's stream, between what the other has got before and gets later.
        run.clocks.wait(own, run.clocks.of(other))
        source_handle.storage.access.note(own, run.clocks.submit(own), False)
        run.clocks.wait(other, run.clocks.of(own))
        handle.storage.access.note(other, run.clocks.submit(other), True)
        handle.storage.checked = False
    handle.array[:count] = source_handle.array[:count]


@action
def copy_pinned(run: Executor, index: int, stream: int, which: int, to_host: int, how: int) -> None:
    """Copy between pinned host memory and a tensor, without waiting."""
    handle = run.pick(index)
    if handle is None or not handle.tensor.is_contiguous():
        return
    pinned = run.pinned[which % len(run.pinned)]
    number = handle.storage.device * STREAMS + stream % STREAMS
    size = min(handle.array.nbytes, len(pinned.array)) // handle.array.itemsize * handle.array.itemsize
    there, here = (
        pinned.tensor[:size].view(handle.tensor.dtype),
        handle.tensor[: size // handle.array.itemsize],
    )
    model_there, model_here = pinned.array[:size].view(handle.array.dtype), handle.array[: len(here)]
    if not to_host and handle.array.dtype == np.float32:
        return  # any bytes as floats: NaNs
    source, target = (handle, pinned) if to_host else (pinned, handle)
    run.use(number, how, reads=[source.storage], writes=[target.storage])
    with run.stream(number):
        if to_host:
            there.copy_(here, non_blocking=True)
            model_there[...] = model_here
        else:
            here.copy_(there, non_blocking=True)
            model_here[...] = model_there


@action
def write_pinned(run: Executor, which: int, value: int) -> None:
    """Write pinned memory from the host, once nobody uses it."""
    pinned = run.pinned[which % len(run.pinned)]
    run.order_host(pinned.storage.access.all)
    pinned.array[...] = pattern(len(pinned.array), torch.uint8, value)
    pinned.tensor.copy_(torch.from_numpy(pinned.array))


@action
def renew_pinned(run: Executor, which: int) -> None:
    """Let go of pinned memory while copies may be under way, and take new."""
    run.pinned[which % len(run.pinned)] = run.new_pinned()


@action
def write_from_host(run: Executor, index: int, stream: int, value: int, how: int) -> None:
    """Copy pageable host memory to a tensor."""
    handle = run.pick(index)
    if handle is None:
        return
    number = handle.storage.device * STREAMS + stream % STREAMS
    run.use(number, how, reads=[], writes=[handle.storage])
    data = pattern(len(handle.array), handle.tensor.dtype, value)
    if not handle.tensor.is_contiguous():
        return
    with run.stream(number):
        handle.tensor.copy_(torch.from_numpy(data))
    handle.array[...] = data


# --- order ---


@action
def record_event(run: Executor, event: int, stream: int) -> None:
    """Record an event on a stream of the event's device."""
    stream = event // EVENTS * STREAMS + stream % STREAMS
    run.events[event].record(run.stream(stream))
    run.recorded[event] = dict(run.clocks.of(stream))


@action
def wait_event(run: Executor, stream: int, event: int) -> None:
    """Let a stream wait for an event."""
    run.stream(stream).wait_event(run.events[event])
    run.clocks.wait(stream, run.recorded[event])


@action
def wait_stream(run: Executor, stream: int, other: int) -> None:
    """Let a stream wait for another."""
    run.stream(stream).wait_stream(run.stream(other))
    run.clocks.wait(stream, dict(run.clocks.of(other)))


@action
def synchronize(run: Executor, what: int, index: int) -> None:
    """Let the host wait for a stream, an event or a device; then all known contents are compared."""
    if what == 0:
        run.stream(index).synchronize()
        run.clocks.synchronize(dict(run.clocks.of(index)))
    elif what == 1:
        event = index % (DEVICES * EVENTS)
        run.events[event].synchronize()
        run.clocks.synchronize(run.recorded[event])
    else:
        run.synchronize_device(index % DEVICES)
    run.check_memory()


@action
def query(run: Executor, what: int, index: int) -> None:
    """Ask a stream or an event whether it is done: what it says holds."""
    if what == 0 and run.stream(index).query():
        run.clocks.synchronize(dict(run.clocks.of(index)))
    elif what == 1 and run.events[index % (DEVICES * EVENTS)].query():
        run.clocks.synchronize(run.recorded[index % (DEVICES * EVENTS)])
    run.check_memory()
