"""Programs with several streams that are right: the sanitizer must not report any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from planted_race import DEVICE, default, on, ones, side
from torch import nn

PATTERNS: list[Callable[[], None]] = []


def pattern(body: Callable[[], None]) -> Callable[[], None]:
    PATTERNS.append(body)
    return body


def _model() -> nn.Sequential:
    layers = [nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 4)]
    return nn.Sequential(*layers).to(DEVICE)


class _Reducer:
    """What DistributedDataParallel's reducer does with streams, with a division in the collective's place."""

    def __init__(self, parameters: list[nn.Parameter], num_buckets: int) -> None:
        self.comm = side()
        self.buckets = [parameters[index::num_buckets] for index in range(num_buckets)]
        self.flat = [ones(sum(p.numel() for p in bucket)) for bucket in self.buckets]
        self.views = [
            flat.split([p.numel() for p in bucket])
            for flat, bucket in zip(self.flat, self.buckets, strict=True)
        ]
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index, view))
            for index, bucket in enumerate(self.buckets)
            for view, parameter in zip(self.views[index], bucket, strict=True)
        ]
        self.comm.wait_stream(default())
        self.start()

    def start(self) -> None:
        self.missing = [len(bucket) for bucket in self.buckets]
        self.done: list[tuple[int, torch.Event]] = []

    def _hook(self, index: int, view: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def ready(parameter: torch.Tensor) -> None:
            view.copy_(parameter.grad.view(-1))
            self.missing[index] -= 1
            if self.missing[index] == 0:
                self._reduce(index)

        return ready

    def close(self) -> None:
        """Lets go of the parameters: their hooks refer to them."""
        for hook in self.hooks:
            hook.remove()

    def _reduce(self, index: int) -> None:
        ready, reduced = torch.loom.Event(), torch.loom.Event()
        ready.record()
        self.comm.wait_event(ready)
        with on(self.comm):
            # A collective works on a copy that it frees.
            staged = self.flat[index].clone()
            self.flat[index].copy_(staged.div_(2))
            reduced.record()
        self.flat[index].record_stream(self.comm)
        self.done.append((index, reduced))

    def finish(self) -> None:
        for index, reduced in self.done:
            torch.loom.current_stream().wait_event(reduced)
            for view, parameter in zip(self.views[index], self.buckets[index], strict=True):
                parameter.grad.copy_(view.view_as(parameter))
        self.start()


@pattern
def gradient_buckets() -> None:
    model = _model()
    reducer = _Reducer(list(model.parameters()), num_buckets=2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 16, device=DEVICE)).square().mean().backward()
        reducer.finish()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    reducer.close()


@pattern
def gradients_flattened_anew_each_step() -> None:
    gradients, comm = [ones(64), ones(32)], side()
    for _ in range(4):
        flat = torch.cat(gradients)
        comm.wait_stream(default())
        with on(comm):
            flat.div_(2)
        flat.record_stream(comm)
        default().wait_stream(comm)
        for gradient, part in zip(gradients, flat.split([64, 32]), strict=True):
            gradient.copy_(part)
        del flat


@pattern
def loader_with_prefetch() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(40, 16), torch.randint(4, (40,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True)
    model, copies = _model(), side()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def fetch(batches: object) -> list[torch.Tensor] | None:
        batch = next(batches, None)
        if batch is None:
            return None
        with on(copies):
            return [tensor.to(DEVICE, non_blocking=True) for tensor in batch]

    for _ in range(2):
        batches = iter(loader)
        following = fetch(batches)
        while following is not None:
            torch.loom.current_stream().wait_stream(copies)
            inputs, labels = following
            for tensor in following:
                tensor.record_stream(torch.loom.current_stream())
            following = fetch(batches)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            del inputs, labels


@pattern
def double_buffered_copies() -> None:
    hosts = [torch.randn(256).pin_memory() for _ in range(2)]
    buffers, copies = [ones(256), ones(256)], side()
    consumed = [torch.loom.Event(), torch.loom.Event()]
    copied = [torch.loom.Event(), torch.loom.Event()]
    copies.wait_stream(default())
    for step in range(6):
        slot = step % 2
        copies.wait_event(consumed[slot])
        with on(copies):
            buffers[slot].copy_(hosts[slot], non_blocking=True)
            copied[slot].record()
        default().wait_event(copied[slot])
        buffers[slot].mul_(2).sum()
        consumed[slot].record()


@pattern
def forward_on_side_streams() -> None:
    models, streams = [_model(), _model()], [side(), side()]
    parameters = [p for model in models for p in model.parameters()]
    optimizer = torch.optim.Adam(parameters)
    for _ in range(3):
        inputs = torch.randn(8, 16, device=DEVICE)
        outputs = []
        for model, stream in zip(models, streams, strict=True):
            stream.wait_stream(default())
            with on(stream):
                outputs.append(model(inputs))
            inputs.record_stream(stream)
        for output, stream in zip(outputs, streams, strict=True):
            default().wait_stream(stream)
            output.record_stream(default())
        loss = torch.stack(outputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.item() >= 0


@pattern
def whole_step_on_a_side_stream() -> None:
    model, stream = _model(), side()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stream.wait_stream(default())
    with on(stream):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 16, device=DEVICE)).sum().backward()
            optimizer.step()
    default().wait_stream(stream)
    sum(p.sum() for p in model.parameters()).item()


@pattern
def checkpointed_training() -> None:
    model = _model()
    for _ in range(2):
        x = torch.randn(4, 16, device=DEVICE, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()


@pattern
def every_optimizer() -> None:
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "Adamax", "RAdam"):
        for foreach in (False, True):
            model = nn.Linear(8, 8).to(DEVICE)
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, foreach=foreach)
            for _ in range(2):
                optimizer.zero_grad()
                model(ones(2, 8)).square().sum().backward()
                optimizer.step()


@pattern
def convolutions_and_attention() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).to(DEVICE)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to(DEVICE)
    for _ in range(2):
        model(torch.randn(2, 3, 10, 10, device=DEVICE)).sum().backward()
        x = torch.randn(2, 5, 8, device=DEVICE)
        attention(x, x, x)[0].sum().backward()


@pattern
def interleaved_columns() -> None:
    x, a, b = ones(64, 64), side(), side()
    a.wait_stream(default())
    b.wait_stream(default())
    for _ in range(3):
        with on(a):
            x[:, ::2].mul_(2)
            x[:, :1].add_(1)
        with on(b):
            x[:, 1::2].mul_(3)
    default().wait_stream(a)
    default().wait_stream(b)
    x.sum().item()


@pattern
def parts_of_one_buffer() -> None:
    x, streams = ones(4, 1024), [side() for _ in range(4)]
    for row, stream in zip(x, streams, strict=True):
        stream.wait_stream(default())
        with on(stream):
            for _ in range(3):
                row.add_(row.clone())
    torch.loom.synchronize()
    x.sum().item()


@pattern
def in_place_and_views() -> None:
    x = ones(8, 8)
    y = x.t()[1:]
    y.add_(1)
    x.view(-1)[3] = 7
    x.unsqueeze(0).expand(3, 8, 8).sum()
    x[x > 1].sum().item()
    x.resize_(20, 20).zero_()
    torch.cat([x, x.clone()]).nonzero()


@pattern
def host_waits_by_all_means() -> None:
    def made() -> tuple[torch.Tensor, torch.Stream]:
        a = side()
        with on(a):
            return ones(64).mul_(2), a

    x, a = made()
    a.synchronize()
    x.add_(1)
    x, a = made()
    event = torch.loom.Event()
    event.record(a)
    event.synchronize()
    x.add_(1)
    x, a = made()
    event.record(a)
    while not event.query():
        pass
    x.add_(1)
    x, a = made()
    while not a.query():
        pass
    x.add_(1)
    x, _ = made()
    torch.loom.synchronize()
    x.add_(1)


@pattern
def host_reads() -> None:
    for read in (
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x[:, ::2].cpu(),
        lambda x: x.to("cpu", torch.float64),
        lambda x: x.tolist(),
        lambda x: torch.equal(x, x),
        lambda x: bool((x > 0).all()),
        lambda x: repr(x),
    ):
        a = side()
        with on(a):
            x = ones(4, 8)
            read(x)
        x.add_(1)


@pattern
def sizes_that_the_host_waits_for() -> None:
    for find in (
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
    ):
        a = side()
        with on(a):
            x = ones(4, 8)
            find(x)
        x + 1  # the result is not ready, but what it was made of is


@pattern
def copy_to_pinned_memory() -> None:
    x, a = ones(256), side()
    for _ in range(3):
        a.wait_stream(default())
        with on(a):
            host = torch.empty(256).pin_memory()
            host.copy_(x, non_blocking=True)
            done = torch.loom.Event()
            done.record()
        done.synchronize()
        host.sum()
        x.add_(1)


@pattern
def pinned_memory_is_used_again() -> None:
    a, b = side(), side()
    for _ in range(3):
        for stream in (a, b):
            with on(stream):
                x = torch.ones(256).pin_memory().to(DEVICE, non_blocking=True)
                torch.empty(256).pin_memory().copy_(x, non_blocking=True)


@pattern
def freed_before_the_wait() -> None:
    for _ in range(3):
        x, a = ones(), side()
        a.wait_stream(default())
        with on(a):
            y = x + 1
        del x
        default().wait_stream(a)
        y.record_stream(default())
        y + ones()


@pattern
def cache_is_emptied_between() -> None:
    x, a = torch.ones(1 << 22, device=DEVICE), side()
    a.wait_stream(default())
    with on(a):
        x + 1
    del x
    torch.loom.empty_cache()  # waits for the device before memory is given back
    torch.ones(1 << 22, device=DEVICE)


@pattern
def two_devices_in_threads() -> None:
    model = _model()
    for _ in range(2):
        inputs = torch.randn(8, 16, device=DEVICE)
        copies = [side(0), side(1)]
        parts: list[torch.Tensor] = []
        for index, part in enumerate(inputs.chunk(2)):
            copies[index].wait_stream(default(index))
            default_of_source = default(0)
            copies[0].wait_stream(default_of_source)
            with on(copies[0]):
                moved = part.to(f"{DEVICE}:{index}")
            part.record_stream(copies[0])
            default(index).wait_stream(copies[0])
            parts.append(moved)
        default(0).wait_stream(copies[0])
        replicas = [model, _replica(model, 1)]
        outputs: list[torch.Tensor | None] = [None, None]

        def run(index: int) -> None:
            with torch.loom.device(index):
                outputs[index] = replicas[index](parts[index])  # noqa: B023 (joined below)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loss = torch.cat([output.to(f"{DEVICE}:0") for output in outputs]).square().mean()
        loss.backward()
        loss.item()


def _replica(model: nn.Module, device: int) -> nn.Module:
    replica = _model().to(f"{DEVICE}:{device}")
    for own, original in zip(replica.parameters(), model.parameters(), strict=True):
        own.data.copy_(original)
    return replica


@pattern
def threads_with_streams_of_their_own() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with on(side()):
                x = ones(256)
                for _ in range(20):
                    x = (x * 2).sub_(1)
                x.sum().item()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pattern
def replays_of_one_graph_on_two_streams() -> None:
    x, graph, streams = ones(64), torch.loom.CUDAGraph(), [side(), side()]
    with torch.loom.graph(graph):
        x.mul_(2)
    for stream in streams:
        stream.wait_stream(default())
    for stream in (*streams, *streams):  # a graph comes after its own last replay
        with on(stream):
            graph.replay()
    torch.loom.synchronize()
    assert x.sum().item() == 64 * 16


@pattern
def graph_replays() -> None:
    x, a, graph = ones(64), side(), torch.loom.CUDAGraph()
    a.wait_stream(default())
    with on(a):
        for _ in range(2):
            (x * 2 + 1).sum()
    default().wait_stream(a)
    torch.loom.synchronize()
    with torch.loom.graph(graph):
        y = (x * 2 + 1).relu()
        z = y.sum()
    for step in range(3):
        x.fill_(step)
        graph.replay()
        z.item()
        a.wait_stream(default())
        with on(a):
            graph.replay()
            y.mul_(2)
        default().wait_stream(a)
        y + 1
    torch.loom.synchronize()
