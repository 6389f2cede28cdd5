"""Backward passes in CUDA's name: each device has its thread, as on a GPU."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_hooks_see_nothing_that_is_local_to_the_callers_thread(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import contextvars, threading, torch
        local, variable = threading.local(), contextvars.ContextVar("variable", default="none")
        local.value, seen = 1, []
        variable.set("caller's")

        main = threading.get_ident()

        def note(gradient=None):
            seen.append((threading.get_ident(), hasattr(local, "value"), variable.get()))

        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                note()
                return gradient * 2

        def run(device):
            seen.clear()
            x = torch.ones(3, device=device, requires_grad=True)
            y = Own.apply(x)
            y.register_hook(note)
            y.sum().backward()
            assert x.grad.tolist() == [2, 2, 2]
            return list(seen)

        threads = {}
        for device in ("cuda:0", "cuda:1"):
            found = run(device)
            assert {one[1:] for one in found} == {(False, "none")} and len(found) == 2, found
            threads[device] = {one[0] for one in found}
        assert all(len(one) == 1 and main not in one for one in threads.values()), threads
        assert threads["cuda:0"] != threads["cuda:1"]
        assert run("cuda:0")[0][0] in threads["cuda:0"]  # the same one each time
        assert {one[0] for one in run("cpu")} == {main}
        with torch.autograd.set_multithreading_enabled(False):
            assert {one[0] for one in run("cuda:0")} == {main}
        """,
        NAME,
    )


@pytest.mark.slow
def test_devices_streams_errors_and_reentrant_passes(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import threading, traceback, warnings, torch
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        # Each op on the stream of its forward, with its device current.
        side, seen = torch.cuda.Stream("cuda:1"), []
        x = torch.ones(3, device="cuda:1", requires_grad=True)
        with torch.cuda.stream(side):
            y = x * 2
            where = lambda: (torch.cuda.current_device(), torch.cuda.current_stream() == side)
            y.register_hook(lambda g: seen.append(where()))
            z = y.exp()
        z.sum().backward()
        assert seen == [(1, True)], seen
        torch.testing.assert_close(x.grad.cpu(), torch.full((3,), 2.0).mul(torch.tensor(2.0).exp()))
        assert torch.cuda.current_device() == 0

        # Errors come to the caller, with Python's traceback and, in anomaly mode, the forward's.
        class Failing(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, gradient):
                raise KeyError("from the backward")

        x = torch.ones(3, device="cuda", requires_grad=True)
        for is_watched in (False, True):
            watch = torch.autograd.set_detect_anomaly(is_watched)
            with warnings.catch_warnings(record=True) as warned, watch:
                warnings.simplefilter("always")
                try:
                    Failing.apply(x).sum().backward()
                except KeyError as error:
                    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
                    assert "backward" in frames, frames
                else:
                    raise AssertionError
                forward = any("Traceback of forward call" in str(one.message) for one in warned)
                assert forward == is_watched
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2, 2, 2]

        # A backward pass within one.
        grads = []
        for mode in (None, True, False):
            torch.manual_seed(0)
            layer = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda()
            x = torch.ones(2, 8, device="cuda", requires_grad=True)
            y = layer(x) if mode is None else checkpoint(layer, x, use_reentrant=mode)
            y.sum().backward()
            grads.append(x.grad)
        assert torch.equal(grads[0], grads[1]) and torch.equal(grads[0], grads[2])

        # Threads of the program's own.
        results = []
        def work(device):
            x = torch.full((4,), 2.0, device=device, requires_grad=True)
            for _ in range(20):
                (x * x).sum().backward()
            results.append(x.grad.sum().item())
        threads = [threading.Thread(target=work, args=(f"cuda:{i % 2}",)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert results == [320.0] * 4, results

        # A dry run may have more devices than there are threads.
        with torch.loom.dry_run(devices=4):
            seen.clear()
            x = torch.ones(4, device="cuda:3", requires_grad=True)
            y = x * 2
            y.register_hook(lambda g: seen.append(threading.get_ident()))
            y.sum().backward()
            assert seen == [threading.get_ident()]
        assert torch._C._is_multithreading_enabled()
        """,
        NAME,
    )


@pytest.mark.slow
def test_a_forked_child_has_no_threads_for_it(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import os, torch
        x = torch.ones(3, device="cuda", requires_grad=True)
        (x * 2).sum().backward()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.ones(3, requires_grad=True).sum().backward()
            except RuntimeError as error:
                text = "Unable to handle autograd's threading in combination with fork-based multiprocessing"
                status = 0 if text in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        NAME,
    )


@pytest.mark.slow
def test_data_parallel(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch import nn
        devices = []

        class Noting(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                devices.append(("forward", torch.cuda.current_device()))
                return x * 1

            @staticmethod
            def backward(ctx, gradient):
                devices.append(("backward", torch.cuda.current_device()))
                return gradient

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def forward(self, x):
                return Noting.apply(self.layer(x))

        model = Model().cuda()
        x = torch.arange(8.0, device="cuda").reshape(4, 2)
        nn.DataParallel(model)(x).sum().backward()
        assert sorted(devices) == [(kind, i) for kind in ("backward", "forward") for i in (0, 1)], devices
        assert model.layer.weight.grad.tolist() == [[12, 16], [12, 16]]
        """,
        NAME,
    )
