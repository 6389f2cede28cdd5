"""Dry runs: a part of a program on devices that compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_loom.config import dry_runs
from torch_loom.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


def test_inside_the_devices_are_others(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        outer = torch.arange(4.0, device="loom:1")
        loom.set_device(1)
        loom.manual_seed(5)
        stream = loom.Stream(1)
        loom.set_stream(stream)
        allocated = loom.memory_allocated(1)
        with loom.dry_run(chip="h200", devices=8) as plan:
            assert loom.device_count() == 8 and plan.num_devices == 8
            assert loom.current_device() == 0
            assert [loom.get_device_name(i) for i in range(8)] == ["h200"] * 8
            assert loom.get_device_properties(7).driver == "null"
            assert loom.mem_get_info(7)[1] == 143771 << 20
            assert loom.current_stream() == loom.default_stream()
            assert loom.memory_allocated(1) == 0
            loom.manual_seed(6)
            loom.set_device(7)
            big = torch.empty(100 << 30, dtype=torch.uint8, device="loom:7")
            half = big[: 1 << 30].view(torch.float16)
            assert (half @ half).shape == () and half.add(1).dtype == torch.float16
            assert plan.peak_memory_bytes(7) >= 101 << 30
            assert plan.peak_memory_bytes("loom:0") == 0
        assert loom.device_count() == 2 and loom.current_device() == 1
        assert loom.current_stream() == stream and loom.initial_seed() == 5
        assert loom.memory_allocated(1) == allocated
        assert outer.sum().item() == 6
        assert plan.peak_memory_bytes(7) >= 101 << 30 and plan.num_devices == 8
        assert plan.peak_reserved_bytes(7) >= plan.peak_memory_bytes(7)
        raises("InvalidDeviceError", "0 … 7", lambda: plan.peak_memory_bytes(8))
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_training_is_planned_and_runs_out_of_memory(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        from torch import nn
        def step(size, device="loom"):
            layers = [nn.Linear(size, size), nn.GELU(), nn.Dropout(0.1), nn.Linear(size, 10)]
            model = nn.Sequential(*layers).to(device)
            optimizer = torch.optim.AdamW(model.parameters())
            loss = nn.functional.cross_entropy(model(torch.randn(64, size, device=device)),
                                               torch.zeros(64, dtype=torch.long, device=device))
            loss.backward()
            optimizer.step()
            return loss
        with torch.loom.dry_run(devices=1, memory="8GiB") as plan:
            step(8192)
            raises("OutOfMemoryError", "8.00 GiB", lambda: step(32768))
            assert step(16).item() == 0
        # Weights, gradients and AdamW's two moments.
        assert 4 * 4 * 8192 * 8192 < plan.peak_memory_bytes() < 8 << 30
        assert step(16).item() > 0
        # The same peak as the program itself has.
        torch.loom.reset_peak_memory_stats()
        before = torch.loom.memory_allocated()
        loss = step(64)
        real = torch.loom.max_memory_allocated() - before
        with torch.loom.dry_run() as plan:
            step(64)
        assert plan.peak_memory_bytes() == real, (plan.peak_memory_bytes(), real)
        """,
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY": "1GiB"},
    )


REFUSED_INSIDE = """
    import torch, torch_loom
    from torch import nn
    loom = torch.loom
    outer = torch.ones(4, 4, device="loom")
    model = nn.Linear(4, 4).to("loom")
    lazy = torch.empty(4, 4, device="loom")
    pending = model(outer).sum()
    with loom.dry_run(devices=3) as plan:
        inner = torch.ones(4, 4, device="loom")
        sdpa = nn.functional.scaled_dot_product_attention
        calls = {
            "both": lambda: inner + outer,
            "alone": lambda: outer + 1,
            "in place": lambda: outer.add_(1),
            "boxed": lambda: torch.linalg.qr(outer),
            "list": lambda: torch.cat([inner, outer]),
            "foreach": lambda: torch._foreach_add([outer], 1),
            "copy in": lambda: inner.copy_(outer),
            "copy out": lambda: outer.copy_(inner),
            "to host": lambda: outer.cpu(),
            "from host": lambda: outer.copy_(torch.ones(4, 4)),
            "item": lambda: outer[0, 0].item(),
            "module": lambda: model(inner),
            "backward": lambda: pending.backward(),
            "peer": lambda: outer.to("loom:1"),
            "fill": lambda: outer.fill_(2),
            "zero": lambda: outer.zero_(),
            "random": lambda: outer.normal_(),
            "resize": lambda: outer.resize_(100),
            "attention": lambda: sdpa(outer[None], inner[None], inner[None]),
            "sparse": lambda: outer.to_sparse(),
            "lazy": lambda: lazy.fill_(1),
            "record": lambda: outer.record_stream(loom.current_stream()),
        }
        for name, call in calls.items():
            try:
                call()
            except RuntimeError as error:
                assert "dry_run" in str(error) or "dry run" in str(error), (name, error)
                assert "inside" in str(error), (name, error)
            else:
                raise AssertionError(name)
        # What needs no memory works: shapes, views.
        assert outer.T[1:].shape == (3, 4) and outer.view(2, 8).stride() == (8, 1)
        assert torch.empty_like(outer).shape == (4, 4)
        inner.add_(1)
    assert (outer + 1).sum().item() == 32
    pending.backward()
    assert model.weight.grad.shape == (4, 4)
    """


@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_tensors_of_the_program_are_refused_inside(fork_loom: PythonRunner, policy: str) -> None:
    fork_loom(REFUSED_INSIDE, {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY_POLICY": policy})


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_tensors_that_outlive_it_have_a_shape_and_are_freed(fork_loom: PythonRunner, policy: str) -> None:
    fork_loom(
        """
        import gc, torch, torch_loom
        loom = torch.loom
        kept = []
        for i in range(30):
            with loom.dry_run(chip="h200", devices=4) as plan:
                x = torch.empty(1 << 30, device=f"loom:{i % 4}")
                y = torch.empty(8, device="loom:3")
                (x + 1, y + 1)
                if i % 10 == 0:
                    kept.append((x, x[1:].view(-1), torch.nn.Linear(4, 4).to("loom:3"), y))
            del x, y
        x, view, module, y = kept[0]
        assert x.shape == (1 << 30,) and view.shape == ((1 << 30) - 1,) and x.dtype == torch.float32
        assert str(module.weight.device) == "loom:3" and x.T.stride() == (1,)
        host, own = torch.ones(8), torch.ones(8, device="loom")
        for call in (
            lambda: x + 1, lambda: y.cpu(), lambda: y[0].item(), lambda: repr(y), lambda: module(own),
            lambda: y.zero_(), lambda: y.copy_(host), lambda: own.copy_(y),
        ):
            try:
                call()
            except RuntimeError as error:
                assert "has ended" in str(error), error
            else:
                raise AssertionError(call)
        with loom.dry_run(devices=4):
            raises("RuntimeError", "another dry run", lambda: y + 1)
            del x, view, module, y
            kept.pop()
            gc.collect()
        kept.clear()
        gc.collect()
        with loom.dry_run(devices=1):
            torch.ones(4, device="loom").sum()
        assert torch.ones(4, device="loom").sum().item() == 4
        """,
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_MEMORY_POLICY": policy},
    )


def test_parameters_of_devices_that_are_not_there_are_refused(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        outer = torch.nn.Linear(4, 4).to("loom:1")
        with loom.dry_run(devices=1):
            # Autograd asks for the streams of a device that the dry run does not have.
            raises("RuntimeError", "inside", lambda: outer(torch.ones(4, device="loom")))
            raises("RuntimeError", "inside", lambda: outer.weight * 2)
        with loom.dry_run(devices=4):
            inner = torch.nn.Linear(4, 4).to("loom:3")
        for call in (lambda: inner(torch.ones(4, device="loom")), lambda: inner.weight * 2):
            try:
                call()
            except RuntimeError as error:
                assert "has ended" in str(error), error
            else:
                raise AssertionError(call)
        outer(torch.ones(4, device="loom:1")).sum().backward()
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_exceptions_restore_and_nesting_is_refused(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom, threading
        loom = torch.loom
        def fail():
            with loom.dry_run(devices=5):
                with loom.device(4):
                    raise KeyError("mine")
        raises("KeyError", "mine", fail)
        assert loom.device_count() == 2 and loom.current_device() == 0
        def nest():
            with loom.dry_run():
                try:
                    with loom.dry_run():
                        pass
                finally:
                    assert loom.get_device_properties(0).driver == "null"
        raises("DryRunError", "one cannot be within another", nest)
        refusals = []
        def elsewhere():
            try:
                with loom.dry_run():
                    pass
            except RuntimeError as error:
                refusals.append(str(error))
        with loom.dry_run(devices=1) as plan:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert loom.device_count() == 1
        assert len(refusals) == 1 and "one cannot be within another" in refusals[0], refusals
        assert loom.get_device_properties(0).driver == "virtual"
        raises("ChipError", "nochip", lambda: loom.dry_run(chip="nochip").__enter__())
        assert torch.ones(2, device="loom").sum().item() == 2
        # Again and again, with one object too.
        again = loom.dry_run(devices=3)
        for _ in range(3):
            with again:
                assert loom.device_count() == 3
        graph = loom.CUDAGraph()
        def capture():
            with loom.graph(graph), loom.dry_run():
                pass
        raises("DryRunError", "captured", capture)
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_streams_events_generators_and_graphs_belong_to_their_world(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import gc, torch, torch_loom
        loom = torch.loom
        x = torch.ones(4, device="loom")
        outer_stream, outer_event = loom.Stream(), loom.Event(enable_timing=True)
        outer_event.record()
        pool = loom.MemPool()
        outer_graph = loom.CUDAGraph()
        with loom.graph(outer_graph):
            y = x * 2
        state = loom.get_rng_state()
        with loom.dry_run(devices=2):
            raises("ValueError", "dry run", lambda: outer_stream.synchronize())
            def enter():
                with loom.stream(outer_stream):
                    pass
            raises("ValueError", "dry run", enter)
            raises("RuntimeError", "dry run", outer_graph.replay)
            assert outer_event.query()
            loom.current_stream().wait_event(outer_event)
            inner_stream = loom.Stream(priority=-1)
            assert inner_stream.priority == -1
            with loom.stream(inner_stream):
                z = torch.rand(1000, device="loom") + 1
                inner_event = inner_stream.record_event()
            loom.current_stream().wait_stream(inner_stream)
            z.record_stream(loom.current_stream())
            loom.synchronize()
            inner_graph = loom.CUDAGraph()
            with loom.graph(inner_graph):
                w = z * 2
            inner_graph.replay()
            inner_pool = loom.MemPool()
            with loom.use_mem_pool(inner_pool):
                v = torch.empty(1 << 20, device="loom")
        assert inner_event.query()
        raises("RuntimeError", "dry run", inner_graph.replay)
        raises("ValueError", "dry run", lambda: inner_stream.synchronize())
        assert torch.equal(loom.get_rng_state(), state)
        del inner_graph, inner_event, inner_pool, inner_stream, z, w, v, pool
        gc.collect()
        for _ in range(3):
            with loom.dry_run():
                pass
        outer_graph.replay()
        outer_stream.synchronize()
        assert y.sum().item() == 8
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_threads_and_backward_passes(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import threading, torch, torch_loom
        loom = torch.loom
        devices = []
        def work():
            loom.set_device(3)
            w = torch.ones(4, device="loom", requires_grad=True)
            (w * 2).sum().backward()
            devices.append((loom.current_device(), str(w.grad.device)))
        with loom.dry_run(devices=4):
            threads = [threading.Thread(target=work) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert loom.current_device() == 0
            # Over several devices, more than the program has.
            a = torch.ones(4, device="loom:0", requires_grad=True)
            (a.to("loom:3") * 2).to("loom:2").sum().backward()
            assert a.grad.device == torch.device("loom:0")
        assert devices == [(3, "loom:3")] * 4, devices
        w = torch.ones(4, device="loom:1", requires_grad=True)
        torch.autograd.set_multithreading_enabled(True)
        (w * 2).sum().backward()
        assert w.grad.sum().item() == 8
        # Autograd's threads are one for each of the program's devices.
        with loom.dry_run(devices=4):
            w = torch.ones(4, device="loom:1", requires_grad=True)
            (w * 2).sum().backward()
            assert w.grad.shape == (4,)
            def on_the_third():
                return torch.ones(4, device="loom:3", requires_grad=True)
            raises("RuntimeError", "autograd's threads", lambda: on_the_third() * 2)
            torch.autograd.set_multithreading_enabled(False)
            w = torch.ones(4, device="loom:3", requires_grad=True)
            (w * 2).sum().backward()
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


@pytest.mark.slow
def test_threads_that_work_while_it_begins_and_ends(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import threading, torch, torch_loom
        loom = torch.loom
        stop, failures = threading.Event(), []
        def work():
            while not stop.is_set():
                try:
                    x = torch.ones(100, device="loom")
                    y = x + x
                    del x
                    y.sum()
                except RuntimeError as error:  # its tensors are of the world before
                    if "dry run" not in str(error) and "dry_run" not in str(error):
                        failures.append(error)
        threads = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in threads]
        for _ in range(100):
            with loom.dry_run(devices=2):
                torch.ones(10, device="loom:1").sum()
        stop.set()
        [thread.join() for thread in threads]
        assert not failures, failures
        assert torch.ones(4, device="loom").sum().item() == 4
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_a_forked_child_inside(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import os, torch, torch_loom
        from torch.utils.data import DataLoader
        loom = torch.loom
        torch.ones(1, device="loom")
        with loom.dry_run(devices=1) as plan:
            x = torch.ones(4, device="loom")
            child = os.fork()
            if child == 0:
                try:
                    torch.ones(1, device="loom")
                except RuntimeError as error:
                    os._exit(0 if "spawn" in str(error) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            # Workers make batches on the host, and are told of no device.
            for batch in DataLoader(list(range(8)), batch_size=4, num_workers=2):
                assert batch.to("loom").shape == (4,)
            child = os.fork()
        if child == 0:
            os._exit(0 if loom._is_in_bad_fork() else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.ones(4, device="loom").sum().item() == 4
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_pinned_memory_is_the_hosts(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        outer = torch.ones(1000).pin_memory("loom")
        with loom.dry_run():
            assert outer.is_pinned()
            x = outer.to("loom", non_blocking=True)
            inner = torch.ones(1000).pin_memory("loom")
            inner.to("loom", non_blocking=True)
        del x
        assert inner.is_pinned() and inner.to("loom", non_blocking=True).sum().item() == 1000
        """,
        {"TORCH_LOOM_CHIP": "loom1"},
    )


def test_chips_may_differ_and_fall_back(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        with loom.dry_run(chip=["h200", "atom"], memory=["8GiB", 1 << 30]) as plan:
            assert [loom.get_device_name(i) for i in range(2)] == ["h200", "atom"]
            assert [loom.mem_get_info(i)[1] for i in range(2)] == [8 << 30, 1 << 30]
            torch.ones(4, device="loom:0").exp()
            assert not loom.fallback_stats()
            torch.ones(4, dtype=torch.float16, device="loom:1").exp()
            assert loom.fallback_stats() == {("aten::exp", None): 1}
            with loom.device(1):
                assert loom.get_amp_supported_dtype() == [torch.float16]
            assert loom.utilization(1) == 0 and loom.temperature(1) == 25
            used = torch.ones(1 << 20, device="loom:0")
            assert loom.device_memory_used(0) >= 4 << 20
        torch.ones(4, dtype=torch.float16, device="loom:1").exp()
        assert loom.fallback_stats() == {("aten::exp", None): 1}
        """,
        {"TORCH_LOOM_CHIP": "loom1", "TORCH_LOOM_FALLBACK": "allow"},
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"devices": 0}, "devices=0"),
        ({"devices": 65}, "1 to 64"),
        ({"devices": True}, "not a number"),
        ({"devices": 2, "chip": ["h200"] * 3}, "3 in the list for 2 devices"),
        ({"chip": ["h200"] * 3, "memory": ["1GiB", "2GiB"]}, "2 in the list for 3 devices"),
        ({"chip": []}, "a list of 0"),
        ({"chip": ""}, "neither a name nor a path"),
        ({"chip": 3}, "wrong type"),
        ({"memory": "1"}, "out of range"),
        ({"memory": 1.5}, "wrong type"),
        ({"memory": ["1GiB", None]}, "wrong type"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        dry_runs.request(
            arguments.get("chip"),  # type: ignore[arg-type]
            arguments.get("devices"),  # type: ignore[arg-type]
            arguments.get("memory"),  # type: ignore[arg-type]
        )
