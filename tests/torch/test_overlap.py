"""What runs beside what: workers, host and copies, streams and threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.gate import Gate


def warm() -> torch.Tensor:
    """Return a tensor to which adding one, doubling and copying are known, so that they can be queued."""
    x = torch.ones(4, device="loom")
    with loom.stream(loom.Stream()):
        for _ in range(2):
            x.clone().add_(1).mul_(2)
            x + 1
            x * 2
            x.clone().copy_(x)
            x.clone().copy_(x.expand(3, 4)[0])
    loom.synchronize()
    return x


def test_an_idle_default_stream_runs_in_the_callers_thread(gate: Gate) -> None:
    torch.special.bessel_j1(torch.ones(1, device="loom"))
    assert gate.thread == threading.get_ident()
    assert loom.default_stream().query()
    gate.hold(loom.Stream())
    gate.open()
    loom.synchronize()
    assert gate.thread != threading.get_ident()


def test_a_side_stream_runs_beside_the_host_and_others(gate: Gate) -> None:
    x = warm()
    held, free = loom.Stream(), loom.Stream()
    gate.hold(held)
    with loom.stream(held):
        late = x + 1
        last = held.record_event()
    with loom.stream(free):
        early = x * 2
    free.synchronize()
    assert early.tolist() == [2] * 4
    assert not last.query()
    gate.open()
    last.synchronize()
    assert late.tolist() == [2] * 4


def test_the_default_stream_waits_without_the_host(gate: Gate) -> None:
    x = warm()
    side, default = loom.Stream(), loom.default_stream()
    gate.hold(side)
    with loom.stream(side):
        x.add_(1)
    default.wait_event(side.record_event())
    y = x * 2
    assert not default.query()
    gate.open()
    assert y.tolist() == [4] * 4


def test_a_side_stream_waits_for_the_default_one(gate: Gate) -> None:
    x = warm()
    first, second = loom.Stream(), loom.Stream()
    gate.hold(first)
    loom.default_stream().wait_stream(first)
    x.add_(1)
    second.wait_stream(loom.default_stream())
    with loom.stream(second):
        y = x * 2
        assert not second.query()
    gate.open()
    second.synchronize()
    assert y.tolist() == [4] * 4


def test_pinned_copies_do_not_wait(gate: Gate) -> None:
    x = warm()
    source, target = torch.full((4,), 7.0).pin_memory(), torch.zeros(4).pin_memory()
    side = loom.Stream()
    gate.hold(side)
    with loom.stream(side):
        x.copy_(source, non_blocking=True)
        target.copy_(x, non_blocking=True)
        moved = x.to("cpu", non_blocking=True)
        assert not side.query()
    source.fill_(9)  # too early, as the test wants to see: the copy reads it later
    assert target.tolist() == [0] * 4
    gate.open()
    side.synchronize()
    assert target.tolist() == moved.tolist() == [9] * 4


def test_other_copies_wait() -> None:
    side = loom.Stream()
    with loom.stream(side):
        for pin in (False, True):
            for non_blocking in (False, True):
                if pin and non_blocking:
                    continue
                source, target = torch.full((1 << 16,), 7.0), torch.zeros(1 << 16)
                if pin:
                    source, target = source.pin_memory(), target.pin_memory()
                x = torch.empty(1 << 16, device="loom").copy_(source, non_blocking=non_blocking)
                source.fill_(0)
                target.copy_(x, non_blocking=non_blocking)
                assert target.eq(7).all()


def test_copies_between_devices_are_ordered_with_both(gate: Gate) -> None:
    x = warm()
    there = torch.zeros(4, device="loom:1")
    here, far = loom.Stream("loom:0"), loom.Stream("loom:1")
    for _ in range(2):
        gate.open()
        with loom.stream(far):
            there.add_(1)
            loom.synchronize(1)
            gate.hold(far)
            there.add_(1)
            with loom.stream(here):
                x.copy_(there)
            there.add_(1)
            assert not here.query()
    gate.open()
    loom.synchronize(0)
    loom.synchronize(1)
    assert x.tolist() == [5] * 4
    assert there.tolist() == [6] * 4


def test_record_stream_keeps_memory_from_being_used_again(gate: Gate) -> None:
    side = loom.Stream()
    x = torch.ones(1 << 20, device="loom")
    address = x.data_ptr()
    gate.hold(side)
    x.record_stream(side)
    del x
    others = [torch.empty(1 << 20, device="loom") for _ in range(3)]
    assert address not in [other.data_ptr() for other in others]
    gate.open()
    side.synchronize()
    del others
    assert address in [torch.empty(1 << 20, device="loom").data_ptr() for _ in range(4)]


def test_backward_runs_on_the_streams_of_the_forward(gate: Gate) -> None:
    x = warm().requires_grad_()
    side, other = loom.Stream(), loom.Stream()
    seen = []

    def note(gradient: torch.Tensor) -> None:
        seen.append(loom.current_stream())

    def forward() -> torch.Tensor:
        with loom.stream(side):
            a = x * 2
            a.register_hook(note)
        other.wait_stream(side)
        with loom.stream(other):
            b = a * 3
            b.register_hook(note)
            return b.sum()

    with loom.stream(other):
        forward().backward()
        loom.synchronize()
    x.grad = None
    seen.clear()
    loss = forward()
    with loom.stream(loom.Stream()):
        loom.current_stream().wait_stream(other)
        loss.backward()
        assert x.grad is not None
        assert (x.grad + 1).tolist() == [7] * 4, "a leaf's gradient is ready for the stream of the caller"
    assert seen == [other, side]


def test_many_threads_with_streams_of_their_own() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            device = f"loom:{number % 2}"
            with loom.stream(loom.Stream(device)):
                generator = torch.Generator().manual_seed(number)
                x = torch.rand(17, generator=generator)
                y = x.to(device)
                for i in range(100):
                    x, y = x * 0.5 + i, y * 0.5 + i
                    if i % 40 == 0:
                        loom.current_stream().synchronize()
                assert torch.equal(x, y.cpu())
                assert loom.current_device() == number % 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_one_stream_from_many_threads() -> None:
    side = loom.Stream()
    totals = [torch.zeros(8, device="loom") for _ in range(4)]
    shared = torch.zeros(8, dtype=torch.int64, device="loom")

    def work(number: int) -> None:
        with loom.stream(side):
            for _ in range(100):
                totals[number].add_(1)
                shared.add_(1)

    side.wait_stream(loom.current_stream())
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    side.synchronize()
    assert [total[0].item() for total in totals] == [100] * 4
    assert shared.tolist() == [400] * 8
